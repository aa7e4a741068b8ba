//! Decides what the path templates of `google.api.http` match, as in `/v1/{name=namespaces/*/schedules/*}:pause`.
//!
//! In: a template, a path. Out: the values of the template's variables. A segment with an encoded slash keeps it
//! encoded, so that it cannot pass for two. Not here: `**`, which no template uses and none may.

use percent_encoding::percent_decode_str;

/// A path template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    segments: Vec<Segment>,
    variables: Vec<Variable>,
    verb: Option<String>,
}

/// One part of a path between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// This text.
    Literal(String),
    /// `*`.
    Any,
}

/// The field that some segments together are the value of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    /// Its path in the request, as in `schedule.name`.
    field: String,
    from: usize,
    to: usize,
}

/// A path as a request gave it.
#[derive(Clone, Debug)]
pub(crate) struct Path<'a> {
    segments: Vec<&'a str>,
    verb: Option<&'a str>,
}

impl<'a> Path<'a> {
    pub(crate) fn new(path: &'a str) -> Self {
        let mut segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let mut verb = None;
        if let Some(last) = segments.last_mut()
            && let Some((segment, after)) = last.rsplit_once(':')
        {
            *last = segment;
            verb = Some(after);
        }
        Self { segments, verb }
    }
}

impl Template {
    /// Reads a template; says what is wrong with one that cannot be served.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.strip_prefix('/').ok_or("the template does not begin with /")?;
        let mut template = Self { segments: Vec::new(), variables: Vec::new(), verb: None };
        loop {
            let after = match rest.strip_prefix('{') {
                Some(variable) => {
                    let (variable, after) = variable.split_once('}').ok_or("a brace is not closed")?;
                    let (field, pattern) = variable.split_once('=').unwrap_or((variable, "*"));
                    let from = template.segments.len();
                    for segment in pattern.split('/') {
                        template.push(segment)?;
                    }
                    let to = template.segments.len();
                    template.variables.push(Variable { field: field.to_owned(), from, to });
                    after
                }
                None => {
                    let end = rest.find(['/', ':']).unwrap_or(rest.len());
                    template.push(&rest[..end])?;
                    &rest[end..]
                }
            };
            match after.split_at_checked(1) {
                None => return Ok(template),
                Some((":", verb)) => {
                    template.verb = Some(verb.to_owned());
                    return Ok(template);
                }
                Some(("/", next)) => rest = next,
                Some(_) => return Err(format!("{after:?} follows a variable")),
            }
        }
    }

    fn push(&mut self, segment: &str) -> Result<(), String> {
        self.segments.push(match segment {
            "*" => Segment::Any,
            "" | "**" => return Err(format!("the segment {segment:?} is not served")),
            text => Segment::Literal(text.to_owned()),
        });
        Ok(())
    }

    /// The values of the variables, by their fields, where the path is one of this template's.
    pub(crate) fn matches(&self, path: &Path<'_>) -> Option<Vec<(&str, String)>> {
        if self.segments.len() != path.segments.len() || self.verb.as_deref() != path.verb {
            return None;
        }
        let fits = |(expected, given): (&Segment, &&str)| match expected {
            Segment::Literal(text) => text == given,
            Segment::Any => !given.is_empty(),
        };
        if !self.segments.iter().zip(&path.segments).all(fits) {
            return None;
        }
        let mut values = Vec::new();
        for variable in &self.variables {
            let parts = path.segments.get(variable.from..variable.to).unwrap_or_default();
            let parts: Vec<String> = parts.iter().map(|part| decoded(part)).collect();
            values.push((variable.field.as_str(), parts.join("/")));
        }
        Some(values)
    }

    /// The fields that the path gives.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| variable.field.as_str())
    }

    /// The template as OpenAPI writes it, and for each parameter its name and the collection before it:
    /// `/v1/namespaces/{namespace}/schedules/{schedule}:pause`.
    pub(crate) fn open_api(&self) -> (String, Vec<(String, String)>) {
        let mut path = String::new();
        let mut parameters = Vec::new();
        let mut collection = "";
        for segment in &self.segments {
            path.push('/');
            match segment {
                Segment::Literal(text) => {
                    path.push_str(text);
                    collection = text;
                }
                Segment::Any => {
                    let name = singular(collection);
                    path.push_str(&format!("{{{name}}}"));
                    parameters.push((name, collection.to_owned()));
                }
            }
        }
        if let Some(verb) = &self.verb {
            path.push(':');
            path.push_str(verb);
        }
        (path, parameters)
    }
}

fn decoded(segment: &str) -> String {
    match percent_decode_str(segment).decode_utf8() {
        Ok(text) if !text.contains('/') => text.into_owned(),
        _ => segment.to_owned(),
    }
}

fn singular(collection: &str) -> String {
    match collection.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => collection.strip_suffix('s').unwrap_or(collection).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn found(template: &str, path: &str) -> Option<Vec<(String, String)>> {
        let template = Template::parse(template).unwrap();
        let values = template.matches(&Path::new(path))?;
        Some(values.into_iter().map(|(field, value)| (field.to_owned(), value)).collect())
    }

    fn one(field: &str, value: &str) -> Option<Vec<(String, String)>> {
        Some(vec![(field.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_path_gives_the_variables_of_its_template() {
        let template = "/v1/{name=namespaces/*/schedules/*}:pause";
        assert_eq!(
            found(template, "/v1/namespaces/a/schedules/b:pause"),
            one("name", "namespaces/a/schedules/b")
        );
        for other in [
            "/v1/namespaces/a/schedules/b",
            "/v1/namespaces/a/schedules/b:resume",
            "/v1/namespaces/a/schedules/:pause",
            "/v1/namespaces/a/policies/b:pause",
            "/v1/namespaces/a/schedules/b/:pause",
            "/v1/namespaces//schedules/b:pause",
        ] {
            assert_eq!(found(template, other), None, "{other}");
        }
        let list = "/v1/{parent=namespaces/*}/schedules";
        assert_eq!(found(list, "/v1/namespaces/a/schedules"), one("parent", "namespaces/a"));
        assert_eq!(found("/v1/events/{name}:release", "/v1/events/0a-1:release"), one("name", "0a-1"));
        assert_eq!(found("/v1/dispatch:pause", "/v1/dispatch:pause"), Some(Vec::new()));
    }

    #[test]
    fn an_encoded_slash_does_not_pass_for_two_segments() {
        let found = |path| found("/v1/events/{name}", path);
        assert_eq!(found("/v1/events/a%20b"), one("name", "a b"));
        assert_eq!(found("/v1/events/a%2Fb"), one("name", "a%2Fb"));
        assert_eq!(found("/v1/events/%ff"), one("name", "%ff"));
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        for template in ["v1/x", "/v1/{name", "/v1/{name=**}", "/v1//x", "/v1/{name}x"] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }

    #[test]
    fn open_api_names_each_part() {
        let template = Template::parse("/v1/{parent=namespaces/*/policies/*}/runs:stop").unwrap();
        let (path, parameters) = template.open_api();
        assert_eq!(path, "/v1/namespaces/{namespace}/policies/{policy}/runs:stop");
        let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["namespace", "policy"]);
    }
}
