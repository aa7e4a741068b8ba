//! Decides how one alert is made, changed and deleted.
//!
//! Invariant: secrets are in clear in what a caller gives, and sealed in what is stored; what a caller may not see of the whole
//! installation, it has no alert told of.

use tollgate_auth::Access;
use tollgate_core::model::Alert;
use tollgate_proto::convert::{self, Name, alert, names};
use tollgate_proto::page::{self, Token};
use tollgate_proto::{FieldError, field, mask, v1};
use tollgate_secrets::{ENVELOPE, SecretError, is_alert_sealed};
use tollgate_service::actor::Caller;
use tollgate_service::status::{status, status_of_create};
use tollgate_store::alert::Remembered;
use tollgate_store::plan::PlanWrite;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::change::{Change, again, check_etag};
use crate::deletions::Deletion;
use crate::lists::{cut, limit, to_filter};
use crate::revisions::Revised;
use crate::warnings::namespace_new;

/// Who asks: its name, and whether it reaches all namespaces.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) actor: Caller,
    pub(crate) everywhere: bool,
}

impl ScheduleMaster {
    pub(crate) async fn create_alert(
        &self,
        request: v1::CreateAlertRequest,
        asking: Asking,
    ) -> Result<v1::Alert, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let message = request.alert.ok_or_else(|| FieldError::new("alert", "", "an alert"))?;
        let given = (("alert_id", request.alert_id.as_str()), ("alert.name", message.name.as_str()));
        let name = names::to_create(&namespace, "alerts", given.0, given.1)?;
        let wanted = drafted(&message, &name, None).map_err(|errors| field::invalid_argument(&errors))?;
        may_have(&wanted, asking.everywhere)?;
        if self.store().alert(&name.namespace, &name.id).await.map_err(status)?.is_some() {
            let taken = names::of_alert(&name.namespace, &name.id);
            return Err(Status::already_exists(format!("{taken} exists already")));
        }
        self.admit_alerts(&name.namespace, 1).await?;
        let mut warnings = self.alert_warnings(&wanted).await;
        if self.is_new(&name.namespace).await {
            warnings.push(namespace_new(&name.namespace));
        }
        let deed = Deed { at_us: self.now_us(), actor: asking.actor, action: "create" };
        let (made, change) = self.put_alert(None, wanted, &deed).map_err(|error| sealed(&name, &error))?;
        if !request.validate_only {
            self.admit_writes(&name.namespace, 1)?;
            self.commit(&[&change]).await.map_err(status_of_create)?;
        }
        Ok(v1::Alert { warnings, ..self.show_alert(&made, None) })
    }

    pub(crate) async fn get_alert(&self, name: &str) -> Result<v1::Alert, Status> {
        let stored = self.stored_alert(&names::alert("name", name)?).await?;
        let states = self.store().alert_states(&[stored.uid]).await.map_err(status)?;
        Ok(self.show_alert(&stored, states.first()))
    }

    pub(crate) async fn list_alerts(
        &self,
        request: v1::ListAlertsRequest,
    ) -> Result<v1::ListAlertsResponse, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let filter = to_filter(&request.filter, &["name", "state", "label.*"], &namespace)?;
        let query = ["ListAlerts", &request.parent, &request.filter];
        let after = Token::<String>::decode(&request.page_token, &query)?;
        let rows = self.store().list_alerts(&namespace, &filter, after.as_deref(), limit(size)).await;
        let page = cut(rows.map_err(status)?, size, &query, |row| row.id.clone());
        let uids: Vec<_> = page.rows.iter().map(|row| row.uid).collect();
        let states = self.store().alert_states(&uids).await.map_err(status)?;
        let of = |alert: &Alert| states.iter().find(|state| state.alert == alert.uid);
        let alerts = page.rows.iter().map(|row| self.show_alert(row, of(row))).collect();
        Ok(v1::ListAlertsResponse { alerts, next_page_token: page.next })
    }

    pub(crate) async fn update_alert(
        &self,
        request: v1::UpdateAlertRequest,
        asking: Asking,
    ) -> Result<v1::Alert, Status> {
        let message = request.alert.ok_or_else(|| FieldError::new("alert", "", "an alert"))?;
        let name = names::alert("alert.name", &message.name)?;
        let etag = convert::etag("alert.etag", &message.etag)?;
        let mut try_number = 1;
        loop {
            let stored = self.stored_alert(&name).await?;
            check_etag(&message.name, etag, stored.generation)?;
            let opened = self.opened_alert(&stored).map_err(|error| sealed(&name, &error))?;
            let current = alert::to_message(&opened, None);
            let masked = mask::apply_mask(&current, &message, request.update_mask.as_ref())?;
            let wanted =
                drafted(&masked, &name, Some(&opened)).map_err(|errors| field::invalid_argument(&errors))?;
            may_have(&wanted, asking.everywhere)?;
            let warnings = self.alert_warnings(&wanted).await;
            if wanted == opened {
                return Ok(v1::Alert { warnings, ..self.show_alert(&stored, None) });
            }
            let at_us = self.change_us(stored.updated_us);
            let deed = Deed { at_us, actor: asking.actor.clone(), action: "update" };
            let made = self.put_alert(Some(&stored), wanted, &deed);
            let (made, change) = made.map_err(|error| sealed(&name, &error))?;
            if request.validate_only {
                return Ok(v1::Alert { warnings, ..self.show_alert(&made, None) });
            }
            self.admit_writes(&name.namespace, 1)?;
            match self.commit(&[&change]).await.map_err(status) {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => {
                    return done.map(|()| v1::Alert { warnings, ..self.show_alert(&made, None) });
                }
            }
        }
    }

    pub(crate) async fn delete_alert(
        &self,
        request: v1::DeleteAlertRequest,
        actor: Caller,
    ) -> Result<(), Status> {
        let name = names::alert("name", &request.name)?;
        let asked = (request.etag.as_str(), request.revision);
        let deletion = Deletion::new(Revised::Alert, (&name, &request.name), asked, actor)?;
        let state = |stored: &Alert| (stored.generation, stored.updated_us);
        self.delete(
            deletion,
            || self.stored_alert(&name),
            state,
            |stored, deed| self.drop_alert(&stored, &deed),
        )
        .await
    }

    /// The alert with its new generation and its secrets sealed, and the change that makes it. `wanted` is in clear.
    pub(crate) fn put_alert(
        &self,
        stored: Option<&Alert>,
        wanted: Alert,
        deed: &Deed,
    ) -> Result<(Alert, Change), SecretError> {
        let mut alert = wanted;
        if stored.is_none() {
            alert.uid = self.new_id(deed.at_us);
            alert.created_us = deed.at_us;
        }
        alert.generation = stored.map_or(1, |stored| stored.generation + 1);
        alert.updated_us = deed.at_us;
        if stored.is_none_or(|stored| stored.disabled && !alert.disabled) {
            alert.enabled_us = deed.at_us;
        }
        let before = stored.map(|stored| &stored.target);
        self.options().keys.seal_alert(alert.uid, &mut alert.target, before)?;
        let named = (alert.namespace.as_str(), alert.id.as_str());
        let audit = audit::of_alert(self.new_id(deed.at_us), deed, stored, Some(&alert), named);
        let expected_generation = stored.map(|stored| stored.generation);
        let namespace = alert.namespace.clone();
        let write = PlanWrite::PutAlert { alert: Box::new(alert.clone()), expected_generation, audit };
        Ok((alert, Change::Alert { namespace, write: Box::new(write) }))
    }

    fn drop_alert(&self, stored: &Alert, deed: &Deed) -> Change {
        let named = (stored.namespace.as_str(), stored.id.as_str());
        let write = PlanWrite::DeleteAlert {
            uid: stored.uid,
            name: stored.id.clone(),
            expected_generation: stored.generation,
            audit: audit::of_alert(self.new_id(deed.at_us), deed, Some(stored), None, named),
        };
        Change::Alert { namespace: stored.namespace.clone(), write: Box::new(write) }
    }

    /// A stored alert with its secrets in clear.
    pub(crate) fn opened_alert(&self, stored: &Alert) -> Result<Alert, SecretError> {
        let mut opened = stored.clone();
        self.options().keys.open_alert(stored.uid, &mut opened.target)?;
        Ok(opened)
    }

    /// As callers see it; what cannot be opened stays sealed.
    fn show_alert(&self, stored: &Alert, remembered: Option<&Remembered>) -> v1::Alert {
        let opened = is_alert_sealed(&stored.target).then(|| self.opened_alert(stored).ok()).flatten();
        let state = remembered.map(|remembered| &remembered.state);
        alert::to_message(opened.as_ref().unwrap_or(stored), state)
    }

    async fn stored_alert(&self, name: &Name) -> Result<Alert, Status> {
        let found = self.store().alert(&name.namespace, &name.id).await.map_err(status)?;
        found.ok_or_else(|| {
            let name = names::of_alert(&name.namespace, &name.id);
            Status::not_found(format!("{name} does not exist"))
        })
    }
}

/// What `message` describes. Secrets are in clear, those of `stored` as well.
pub(crate) fn drafted(
    message: &v1::Alert,
    name: &Name,
    stored: Option<&Alert>,
) -> Result<Alert, Vec<FieldError>> {
    let wanted = alert::to_core(message, name, stored)?;
    if is_alert_sealed(&wanted.target) {
        let expected =
            format!("texts that do not begin with {ENVELOPE}, which stands for one that is sealed");
        return Err(vec![FieldError::new("alert.target", "", expected)]);
    }
    Ok(wanted)
}

/// Whether a caller may have an alert told of what it would be.
fn may_have(wanted: &Alert, everywhere: bool) -> Result<(), Status> {
    let installation = wanted.troubles.as_ref().is_some_and(|troubles| troubles.installation);
    if installation { of_installation(everywhere) } else { Ok(()) }
}

/// Refuses what only callers that reach all namespaces may have.
pub(crate) fn may_apply(access: &Access, given: &v1::ApplyResourcesRequest) -> Result<(), Status> {
    let installation = match &given.resource {
        Some(v1::apply_resources_request::Resource::Alert(alert)) => {
            alert.troubles.as_ref().is_some_and(|troubles| troubles.installation)
        }
        _ => false,
    };
    if installation { of_installation(access.namespace().is_none()) } else { Ok(()) }
}

/// Whether a caller may hear of the whole installation.
fn of_installation(everywhere: bool) -> Result<(), Status> {
    if everywhere {
        return Ok(());
    }
    Err(Status::permission_denied("alert.troubles.installation: it is for callers that reach all namespaces"))
}

fn sealed(name: &Name, error: &SecretError) -> Status {
    let name = names::of_alert(&name.namespace, &name.id);
    tracing::error!(alert = name, %error, "a secret can be neither opened nor sealed");
    Status::failed_precondition(format!("{name}: {error}"))
}
