//! Merges the key-value metadata of a run's files. Pure.
//!
//! The rule: a key keeps its value; where files differ, the first file's value is kept and the difference is reported.
//! `baler.*` keys are of the files they are in and are left out. Known keys have rules of their own: `pandas` has its
//! range index stretched over the joined rows, `geo` its bounding boxes and geometry types united.

use serde_json::{Map, Value};

/// Metadata of one file: its key-values and its rows.
pub type FileMetadata<'a> = (&'a [(String, Option<String>)], u64);

/// The merged key-values in order of first appearance, and the keys whose values differed.
pub fn merge(files: &[FileMetadata<'_>]) -> (Vec<(String, Option<String>)>, Vec<String>) {
    let rows: u64 = files.iter().map(|(_, rows)| rows).sum();
    let mut order: Vec<&str> = Vec::new();
    for (key_values, _) in files {
        for (key, _) in *key_values {
            if !key.starts_with("baler.") && !order.contains(&key.as_str()) {
                order.push(key);
            }
        }
    }
    let mut merged = Vec::with_capacity(order.len());
    let mut conflicts = Vec::new();
    for key in order {
        let values: Vec<&Option<String>> = files
            .iter()
            .filter_map(|(key_values, _)| key_values.iter().find(|(name, _)| name == key).map(|(_, value)| value))
            .collect();
        let Some(first) = values.first() else { continue };
        let value = match key {
            "pandas" => first.as_deref().and_then(|text| pandas(text, rows)),
            "geo" => geo(&values, files.len()),
            _ => None,
        };
        let known = value.is_some();
        if !known && values.iter().any(|value| value != first) {
            conflicts.push(key.to_owned());
        }
        merged.push((key.to_owned(), value.or_else(|| (*first).clone())));
    }
    (merged, conflicts)
}

/// The pandas description with its range index over `rows` rows.
fn pandas(text: &str, rows: u64) -> Option<String> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    for index in value.get_mut("index_columns")?.as_array_mut()? {
        if index.get("kind").and_then(Value::as_str) == Some("range") {
            let index = index.as_object_mut()?;
            index.insert("start".into(), 0.into());
            index.insert("stop".into(), rows.into());
            index.insert("step".into(), 1.into());
        }
    }
    serde_json::to_string(&value).ok()
}

/// The GeoParquet description with what is only true of one file's rows united over all files.
fn geo(values: &[&Option<String>], files: usize) -> Option<String> {
    let parsed: Option<Vec<Value>> =
        values.iter().map(|value| value.as_deref().and_then(|text| serde_json::from_str(text).ok())).collect();
    let parsed = parsed?;
    let mut merged = parsed.first()?.clone();
    let names: Vec<String> = merged.get("columns")?.as_object()?.keys().cloned().collect();
    for name in names {
        let all: Vec<Option<&Map<String, Value>>> =
            parsed.iter().map(|value| value.get("columns")?.get(&name)?.as_object()).collect();
        let everywhere = parsed.len() == files && all.iter().all(Option::is_some);
        let bbox =
            everywhere.then(|| all.iter().map(|column| numbers(column.as_ref()?.get("bbox")?)).collect()).flatten();
        let bbox = bbox.and_then(|boxes: Vec<Vec<f64>>| unite(&boxes));
        let types: Option<Vec<Vec<String>>> = everywhere
            .then(|| all.iter().map(|column| strings(column.as_ref()?.get("geometry_types")?)).collect())
            .flatten();
        let column = merged.get_mut("columns")?.get_mut(&name)?.as_object_mut()?;
        match bbox {
            Some(bbox) => column.insert("bbox".into(), bbox.into()),
            None => column.remove("bbox"),
        };
        // An empty list means that the types are not known.
        let mut united: Vec<String> = Vec::new();
        if let Some(types) = types.filter(|types| types.iter().all(|types| !types.is_empty())) {
            types.into_iter().flatten().for_each(|kind| {
                if !united.contains(&kind) {
                    united.push(kind);
                }
            });
        }
        column.insert("geometry_types".into(), united.into());
    }
    serde_json::to_string(&merged).ok()
}

fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The smallest box around boxes of the same number of dimensions: minima first, then maxima.
fn unite(boxes: &[Vec<f64>]) -> Option<Vec<f64>> {
    let mut united = boxes.first()?.clone();
    let half = united.len() / 2;
    if united.len() % 2 != 0 || boxes.iter().any(|other| other.len() != united.len()) {
        return None;
    }
    // West above east means a box over the antimeridian: its union is not this simple.
    if boxes.iter().any(|other| (0..half).any(|at| other[at] > other[at + half])) {
        return None;
    }
    for other in &boxes[1..] {
        for at in 0..half {
            united[at] = united[at].min(other[at]);
            united[at + half] = united[at + half].max(other[at + half]);
        }
    }
    Some(united)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (String, Option<String>) {
        (key.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn the_first_value_is_kept_and_a_conflict_is_reported() {
        let (a, b) =
            (vec![pair("x", "1"), pair("y", "2"), pair("baler.version", "0")], vec![pair("x", "3"), pair("z", "4")]);
        let (merged, conflicts) = merge(&[(&a, 1), (&b, 1)]);
        assert_eq!(merged, [pair("x", "1"), pair("y", "2"), pair("z", "4")]);
        assert_eq!(conflicts, ["x"]);
    }

    #[test]
    fn a_range_index_covers_the_joined_rows() {
        let a = vec![pair("pandas", r#"{"index_columns":[{"kind":"range","name":null,"start":0,"stop":3,"step":1}]}"#)];
        let (merged, conflicts) = merge(&[(&a, 3), (&a, 4)]);
        assert!(merged[0].1.as_deref().unwrap().contains("\"stop\":7"), "{merged:?}");
        assert!(conflicts.is_empty());
    }

    #[test]
    fn boxes_are_united_and_unknown_types_stay_unknown() {
        let geo = |bbox: &str, types: &str| {
            vec![pair(
                "geo",
                &format!(r#"{{"version":"1.0.0","columns":{{"g":{{"bbox":{bbox},"geometry_types":{types}}}}}}}"#),
            )]
        };
        let (a, b) = (geo("[0,0,2,2]", r#"["Point"]"#), geo("[-1,1,1,3]", "[]"));
        let (merged, _) = merge(&[(&a, 1), (&b, 1)]);
        let value: Value = serde_json::from_str(merged[0].1.as_deref().unwrap()).unwrap();
        assert_eq!(value["columns"]["g"]["bbox"], serde_json::json!([-1.0, 0.0, 2.0, 3.0]));
        assert_eq!(value["columns"]["g"]["geometry_types"], serde_json::json!([]));
    }
}
