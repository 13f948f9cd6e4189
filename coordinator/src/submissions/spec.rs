//! A compaction as a user asks for it, and what it means to a plan.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::ObjectRef;
use baler_common::runtime::storage::{Store, Stores};
use baler_proto::v1;

use crate::compaction::{Places, new_compaction};
use crate::plan::{BloomChoice, Dedup, PlanOptions, PublishMode};
use crate::table::directory::layout::RootAs;

/// Refuses a location that is in none of the stores, or that is written as if it would leave its store. The stores
/// themselves refuse the latter too, but only once the submission is begun.
pub(super) fn place_in(stores: &Stores, location: &str) -> Result<(), Failure> {
    let alias = stores.alias_of(location)?;
    if alias.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        let message = "it has an empty, '.' or '..' segment";
        return Err(Failure::new(FailureClass::Policy, message).in_file(location));
    }
    Ok(())
}

/// Opens the places of a submission, which lie in the stores of this process.
pub(super) fn open_places(stores: &Stores, spec: &v1::CompactSpec) -> Result<Places, Failure> {
    let beneath = |location: &str, create: bool| -> Result<Store, Failure> {
        let alias = stores.alias_of(location)?;
        match alias.split_once('/') {
            None => stores.get(&alias),
            Some((name, folder)) => stores.get(name)?.beneath(&alias, folder, create),
        }
    };
    let source = beneath(&spec.source, false)?;
    let Some(out) = &spec.out else {
        let publish = if spec.torn_reads { PublishMode::TornReads } else { PublishMode::InPlace };
        return Ok(Places { target: source.clone(), source, publish });
    };
    let (from, to) = (stores.alias_of(&spec.source)?, stores.alias_of(out)?);
    let within = |inner: &str, outer: &str| format!("{inner}/").starts_with(&format!("{outer}/"));
    if within(&from, &to) || within(&to, &from) {
        let message = format!("the destination {out} and the source {} lie inside each other", spec.source);
        return Err(Failure::new(FailureClass::Policy, message));
    }
    Ok(Places { source, target: beneath(out, true)?, publish: PublishMode::Destination })
}

/// What the source is taken for.
pub(super) fn root_as(spec: &v1::CompactSpec) -> RootAs {
    match spec.layout() {
        v1::LayoutKind::Unspecified => RootAs::Detect,
        v1::LayoutKind::Root => RootAs::Tables,
        v1::LayoutKind::Table => RootAs::Table,
        v1::LayoutKind::Key => RootAs::Key,
    }
}

/// The options of a plan as a submission tells them.
///
/// # Errors
/// The failure names the field that is wrong.
pub fn plan_options(spec: &v1::CompactSpec, publish: PublishMode) -> Result<PlanOptions, Failure> {
    let missing = |field: &str| Failure::new(FailureClass::Policy, format!("{field} is missing"));
    let mut options = PlanOptions::new(new_compaction(), publish, ObjectRef::new("target", ""));
    options.target_bytes = spec.target_bytes.max(1);
    options.min_input_files = spec.min_input_files.max(1);
    options.rewrite = spec.rewrite;
    options.evolve = spec.evolve;
    options.max_bytes = spec.max_bytes;
    options.selection = spec.conditions.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    options.dedup = match &spec.dedup {
        None => Dedup::None,
        Some(dedup) if dedup.tables.is_empty() => Dedup::All,
        Some(dedup) => Dedup::Tables(dedup.tables.iter().cloned().collect()),
    };
    if let Some(bloom) = &spec.bloom {
        options.bloom = match bloom.columns.is_empty() {
            true => BloomChoice::None,
            false => BloomChoice::Columns(bloom.columns.clone()),
        };
        options.bloom_false_positives_ppm = bloom.false_positives_ppm.max(1);
    }
    options.write = spec.write.clone().ok_or_else(|| missing("write"))?.try_into()?;
    Ok(options)
}

/// A spec with these options.
pub fn spec_of(source: String, out: Option<String>, root_as: RootAs, options: &PlanOptions) -> v1::CompactSpec {
    let layout = match root_as {
        RootAs::Detect => v1::LayoutKind::Unspecified,
        RootAs::Tables => v1::LayoutKind::Root,
        RootAs::Table => v1::LayoutKind::Table,
        RootAs::Key => v1::LayoutKind::Key,
    };
    let ppm = options.bloom_false_positives_ppm;
    v1::CompactSpec {
        source,
        out,
        torn_reads: options.publish == PublishMode::TornReads,
        layout: layout.into(),
        target_bytes: options.target_bytes,
        min_input_files: options.min_input_files,
        rewrite: options.rewrite,
        evolve: options.evolve,
        dedup: match &options.dedup {
            Dedup::None => None,
            Dedup::All => Some(v1::Deduplication { tables: Vec::new() }),
            Dedup::Tables(tables) => Some(v1::Deduplication { tables: tables.iter().cloned().collect() }),
        },
        conditions: options.selection.iter().map(ToString::to_string).collect(),
        max_bytes: options.max_bytes,
        write: Some((&options.write).into()),
        bloom: match &options.bloom {
            BloomChoice::Inherit => None,
            BloomChoice::None => Some(v1::BloomFilters { columns: Vec::new(), false_positives_ppm: ppm }),
            BloomChoice::Columns(columns) => {
                Some(v1::BloomFilters { columns: columns.clone(), false_positives_ppm: ppm })
            }
        },
    }
}
