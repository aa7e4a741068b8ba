//! Decides which commands there are, and what each is handed.
//!
//! In: the command line. Out: an exit code, or why it could not be done. Not here: what the commands do.

pub(crate) mod unknown;

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::client::output::{Format, Printer};
use crate::client::{
    ClientArgs, Session, apply, audit, delete, describe, failures, follow, get, history, limit, pause, ping,
    preview, release, results, runs, status, submit, test_alert, trigger, troubles, wait, why, workers,
};
use crate::config::{self, ConfigError, ServeArgs};
use crate::usage::Usage;
use crate::{commands, demo, init, key, secrets, serve, shell, store, times};

/// Throttled batch triggers. Schedules fire batches of events. Policies bound how many events are in flight, until
/// consumers say that the work is done.
#[derive(Parser, Debug)]
#[command(name = "tollgate", version, arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Cli {
    // Shown in the help: `front` moves them behind the command.
    #[command(flatten)]
    _before: ClientArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the service
    Serve(ServeArgs),
    /// Write a commented file to start from, with a policy, a schedule and an alert
    Init(init::InitArgs),
    /// Show the main job on this machine, with a store, a service and a consumer of its own
    Demo(demo::DemoArgs),
    /// Print the settings of `serve` with the values that apply here
    Config(ConfigArgs),
    /// Create, list and revoke API keys, directly in the store
    Key(key::KeyArgs),
    /// Create keys that seal secrets at rest, and seal everything stored under a new one
    Secrets(secrets::SecretsArgs),
    /// Show how many queue shards there are, and change their number, directly in the store
    Store(store::StoreArgs),
    /// Take commands from SQS queues and Kafka topics, and carry them out at a running service
    Commands(Remote<commands::CommandsArgs>),
    /// Print a script that completes commands, flags and names in a shell
    Completions(shell::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands
    Man(shell::ManArgs),
    /// Answer questions about launch times from standard input, one JSON object a line
    Times,

    /// Create and update policies, schedules, calendars and alerts from files
    Apply(Remote<apply::ApplyArgs>),
    /// Show what applying files would change; the exit code is 1 where anything would be, and 0 else
    Diff(Remote<apply::DiffArgs>),
    /// Show one resource as a line, or list resources
    #[command(visible_alias = "list")]
    Get(Remote<get::GetArgs>),
    /// Show everything about one resource
    Describe(Remote<describe::DescribeArgs>),
    /// Delete a schedule, policy, calendar or alert, or all schedules with a label
    Delete(Remote<delete::DeleteArgs>),
    /// Show the next launch times of a schedule
    Preview(Remote<preview::PreviewArgs>),
    /// Start a run of a schedule, or of all with a label
    Trigger(Remote<trigger::TriggerArgs>),
    /// Make a run whose events carry the items of a file: exit code 5 where the same had been submitted before
    Submit(Remote<submit::SubmitArgs>),
    /// Create the missing runs of past launch times
    Backfill(Remote<trigger::BackfillArgs>),
    /// Pause a schedule, all schedules with a label, a policy or everything
    Pause(Remote<pause::PauseArgs>),
    /// End a pause
    Resume(Remote<pause::ResumeArgs>),
    /// Change what a policy says of one key: its limit, its turns, whether it is paused
    Limit(Remote<limit::LimitArgs>),
    /// Cancel the events of a run that have not started
    Cancel(Remote<runs::CancelArgs>),
    /// Retry dead events of a run
    Retry(Remote<runs::RetryArgs>),
    /// Show what went wrong over all runs that have ended, by what was said of it
    Failures(Remote<failures::FailuresArgs>),
    /// Retry dead events of all runs that have ended; counts and asks first
    RetryFailures(Remote<failures::ActArgs>),
    /// Close failures of runs that have ended: nothing more is to be done about them; counts and asks first
    CloseFailures(Remote<failures::ActArgs>),
    /// Release an event's token
    Release(Remote<release::ReleaseArgs>),
    /// Extend an event's token: its consumer still works
    Extend(Remote<release::ExtendArgs>),
    /// Explain why an event is where it is
    Why(Remote<why::WhyArgs>),
    /// Show the runs and skipped triggers of a schedule, or what became of the events of a policy or namespace
    History(Remote<history::HistoryArgs>),
    /// Show the audit log: who changed what
    Audit(Remote<audit::AuditArgs>),
    /// Ask whether a process is ready; needs no key
    Ping(Remote<ping::PingArgs>),
    /// Send a test message of an alert
    TestAlert(Remote<test_alert::TestAlertArgs>),
    /// Tell what happens to a schedule or a policy, line by line: runs, failures, what waits, troubles
    Follow(Remote<follow::FollowArgs>),
    /// Wait until a run has ended: exit code 0 where all went well, 3 where not, 4 where --timeout is over
    Wait(Remote<wait::WaitArgs>),
    /// Print what became of each event of a run, a JSON object a line: exit codes as of `wait`, 4 where it has not ended
    Results(Remote<results::ResultsArgs>),
    /// Show the workers that take events: what each is able to do, its room, what it has
    Workers(Remote<workers::WorkersArgs>),
    /// Show what is wrong, worst first, and what to do
    Troubles(Remote<troubles::TroublesArgs>),
    /// Show what is wrong, and the state of policies, queue shards and emitters
    Status(Remote<status::StatusArgs>),
}

/// A command's own arguments, and those of every command that speaks to the service.
#[derive(Args, Debug)]
struct Remote<A: Args> {
    #[command(flatten)]
    args: A,
    #[command(flatten)]
    client: ClientArgs,
}

impl<A: Args> Remote<A> {
    async fn with(self, command: impl AsyncFnOnce(Session, A) -> anyhow::Result<()>) -> anyhow::Result<()> {
        command(Session::open(self.client).await?, self.args).await
    }
}

/// How `tollgate config` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ConfigFormat {
    /// Aligned columns.
    #[default]
    Table,
    /// JSON.
    Json,
    /// A table for documents, without values.
    Markdown,
}

/// Arguments of `config`: those of `serve`, so that it shows what they come to.
#[derive(Args, Debug)]
struct ConfigArgs {
    #[command(flatten)]
    serve: ServeArgs,

    /// The format of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: ConfigFormat,
}

/// Whether the caller has to change the command line or the configuration.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>() || error.is::<ConfigError>()
}

/// Carries out a command.
///
/// # Errors
/// Why it could not be done, for people.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => {
            let config = config::load(&args, &std::env::vars().collect())?.config;
            config::logging::start(&config.log, config.log_format)?;
            serve::run(config).map(|()| ExitCode::SUCCESS)
        }
        Command::Init(args) => init::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(args),
        Command::Config(args) => show_config(&args).map(|()| ExitCode::SUCCESS),
        Command::Key(args) => key::run(args).map(|()| ExitCode::SUCCESS),
        Command::Secrets(args) => secrets::run(args).map(|()| ExitCode::SUCCESS),
        Command::Store(args) => store::run(args).map(|()| ExitCode::SUCCESS),
        Command::Commands(remote) => commands::run(&remote.args, &remote.client).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => shell::completions(&args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => shell::man(&args, Cli::command()).map(|()| ExitCode::SUCCESS),
        Command::Times => {
            times::answer_lines(std::io::stdin().lock(), std::io::stdout().lock())?;
            Ok(ExitCode::SUCCESS)
        }
        remote => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(Box::pin(run_remote(remote))).map(|()| ExitCode::SUCCESS)
        }
    }
}

async fn run_remote(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(_)
        | Command::Init(_)
        | Command::Demo(_)
        | Command::Config(_)
        | Command::Key(_)
        | Command::Secrets(_)
        | Command::Store(_)
        | Command::Commands(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Times => Ok(()),
        Command::Apply(remote) => apply::run(Session::open_for_long(remote.client).await?, remote.args).await,
        Command::Diff(remote) => apply::diff(Session::open_for_long(remote.client).await?, remote.args).await,
        Command::Get(remote) => remote.with(get::run).await,
        Command::Describe(remote) => remote.with(describe::run).await,
        Command::Delete(remote) => remote.with(delete::run).await,
        Command::Preview(remote) => remote.with(preview::run).await,
        Command::Trigger(remote) => remote.with(trigger::run).await,
        Command::Submit(remote) => {
            submit::run(Session::open_for_long(remote.client).await?, remote.args).await
        }
        Command::Backfill(remote) => remote.with(trigger::backfill).await,
        Command::Pause(remote) => remote.with(pause::pause).await,
        Command::Resume(remote) => remote.with(pause::resume).await,
        Command::Limit(remote) => remote.with(limit::run).await,
        Command::Cancel(remote) => remote.with(runs::cancel).await,
        Command::Retry(remote) => remote.with(runs::retry).await,
        Command::Failures(remote) => remote.with(failures::list).await,
        Command::RetryFailures(remote) => remote.with(failures::retry).await,
        Command::CloseFailures(remote) => remote.with(failures::close).await,
        Command::Release(remote) => remote.with(release::run).await,
        Command::Extend(remote) => remote.with(release::extend).await,
        Command::Why(remote) => remote.with(why::run).await,
        Command::History(remote) => remote.with(history::run).await,
        Command::Audit(remote) => remote.with(audit::run).await,
        Command::Ping(remote) => remote.with(ping::run).await,
        Command::TestAlert(remote) => remote.with(test_alert::run).await,
        Command::Follow(remote) => remote.with(follow::run).await,
        Command::Wait(remote) => {
            let (session, patience) = Session::open_to_wait(remote.client).await?;
            wait::run(session, remote.args, patience).await
        }
        Command::Results(remote) => remote.with(results::run).await,
        Command::Workers(remote) => remote.with(workers::run).await,
        Command::Troubles(remote) => remote.with(troubles::run).await,
        Command::Status(remote) => remote.with(status::run).await,
    }
}

fn show_config(args: &ConfigArgs) -> anyhow::Result<()> {
    let loaded = config::load(&args.serve, &std::env::vars().collect())?;
    match args.output {
        ConfigFormat::Table => config::show::print(&loaded, &Printer::stdout(Format::Table)),
        ConfigFormat::Json => config::show::print(&loaded, &Printer::stdout(Format::Json)),
        ConfigFormat::Markdown => config::show::print_markdown(&Printer::stdout(Format::Table)),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod documents;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod hints;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_are_read() {
        for line in [
            "serve --store sqlite:x.db --log-format json --config a.yaml",
            "config -o markdown --window 30s",
            "times",
            "init",
            "init a.yaml --force",
            "demo --hold --events 20",
            "secrets generate-key",
            "secrets generate-key k2",
            "secrets rotate --store sqlite:a --secret-keys-file keys",
            "completions fish",
            "man --output pages",
            "apply -f a.yaml -f - --dry-run",
            "get schedule nightly -n team",
            "list schedules --filter state=PAUSED -o json",
            "describe event 0a-x",
            "delete policy imports",
            "list alerts --filter state=DISABLED",
            "delete alert on-call --etag 3",
            "test-alert on-call -n team",
            "preview nightly",
            "preview --cron 30_2_*_*_* --zone Europe/Berlin --count 3",
            "preview -f a.yaml",
            "trigger nightly --events 7 --request-id deploy-1.2 --launch-time 15m --priority 9 --payload {\"a\":1}",
            "submit nightly tenants.csv --key-field tenant --units-field size --priority 3 --launch-time 2026-03-01T00:00:00Z --payload {} --again",
            "results 0a-12f3 --failed",
            "trigger -l team=billing --events 7 --dry-run",
            "pause schedules -l team=billing --dry-run",
            "resume schedules --filter state=PAUSED --yes",
            "delete schedules -l team=billing -l tier=1 --page-token x",
            "backfill nightly --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00+01:00",
            "pause schedule nightly --reason because",
            "pause all",
            "resume all",
            "cancel 0a-x --reason because",
            "retry 0a-x e1 e2",
            "failures --schedule nightly --policy imports --since 24h --state DEAD --closed",
            "retry-failures --like HTTP_503 --yes",
            "close-failures --filter schedule=a --page-token x",
            "release e1 --outcome RETRY --next-check 15m --attempt 2 --cursor c",
            "extend e1 --ttl 5m",
            "why e1",
            "history nightly --limit 3",
            "history policy imports --since 2d --step 1h",
            "history -n team",
            "audit schedule/nightly",
            "key create ci --scopes read,token:release --namespace team --expires-in 90d --note x --store sqlite:a",
            "key create ops --scopes admin --all-namespaces -o json",
            "key list --store sqlite:a",
            "key revoke 0123456789abcdef",
            "ping --timeout 4s --api-key k --ca a.pem --cert b.pem --key c.pem",
            "troubles -a --filter severity=CRITICAL --limit 0",
            "status -a --shards --timeout 5s --server http://localhost:1 --actor me",
            "status -A -o wide --watch --interval 5s --color never",
            "-n team get schedules -A -o name -w",
            "get schedule/nightly -o yaml",
            "describe namespaces/team/policies/imports",
            "pause policy/imports --reason because",
            "diff -f a.yaml -o json",
            "apply -f a.yaml --prune -l app=backup -l team=a --yes",
            "history -A --since 2d",
            "wait run 0a-12f3 --for finished --timeout 5m",
            "wait schedule/nightly --for started",
            "follow policy imports",
            "backfill nightly --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z --dry-run",
            "follow schedule/nightly -o json --interval 1s",
        ] {
            let words = line.split(' ').map(|word| word.replace('_', " "));
            Cli::try_parse_from(std::iter::once("tollgate".to_owned()).chain(words)).unwrap();
        }
    }

    #[test]
    fn what_is_done_at_the_store_itself_is_read() {
        for line in ["store shards", "store shards --to 256 --store sqlite:a -o json"] {
            Cli::try_parse_from(std::iter::once("tollgate").chain(line.split(' '))).unwrap();
        }
    }

    #[test]
    fn workers_and_queues_of_commands_are_named() {
        let queues = "commands -f a.yaml --listen-metrics 127.0.0.1:7412 --server http://a:1 --api-key k";
        let checked = "commands -f commands.yaml --check";
        for line in ["workers", "workers render -n team -o wide -w", queues, checked] {
            Cli::try_parse_from(std::iter::once("tollgate").chain(line.split(' '))).unwrap();
        }
    }

    #[test]
    fn wrong_command_lines_are_usage_errors() {
        for line in [
            "",
            "preview",
            "preview nightly --cron *",
            "backfill nightly --from yesterday --to today",
            "trigger",
            "trigger nightly -l team=billing",
            "trigger nightly --payload {",
            "release e1 --outcome maybe",
            "list colours",
            "completions csh",
            "submit nightly",
            "submit nightly a.csv --format yaml",
            "submit nightly a.csv --again --request-id x",
            "submit nightly a.json --wrapped --key-field x",
            "submit nightly a.json --wrapped --units-field x",
            "secrets",
            "store",
            "store shards --to many",
            "commands",
            "commands -f a.yaml --listen-metrics here",
            "apply",
            "serve --port 3",
            "key create ci --scopes read",
            "key create ci --scopes write --all-namespaces",
            "key create ci --scopes read --namespace a --all-namespaces",
            "ping --cert b.pem",
        ] {
            let words = std::iter::once("tollgate").chain(line.split(' ').filter(|word| !word.is_empty()));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn flags_reach_the_configuration() {
        let cli = Cli::try_parse_from(["tollgate", "serve", "--window", "30s", "--sends-max=5"]).unwrap();
        let Command::Serve(args) = cli.command else { panic!("not serve") };
        let config = config::load(&args, &std::collections::BTreeMap::new()).unwrap().config;
        assert_eq!((config.window_s, config.sends_max), (30, 5));
    }
}
