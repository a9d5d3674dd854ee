//! The file that holds the models of a machine, in JSON: what was measured, and what was predicted
//! from it.

use serde::{Deserialize, Serialize};

use crate::benchmark::KernelTime;
use crate::limits::{CURVES_MAX, FILE_BYTES_MAX};
use crate::model::DistanceModel;
use crate::transfer::TransferTime;

/// Version of the file's format.
pub const FORMAT: u32 = 1;

/// All that is known of a machine's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryModel {
    format: u32,
    /// Processor and number of CPUs.
    pub machine: String,
    /// A model for each distance of two cores, near ones first.
    pub distances: Vec<DistanceModel>,
    /// Kernels, with the first distance.
    pub kernels: Vec<KernelTime>,
    /// Short messages between two ranks, with the first distance.
    pub eager: Vec<TransferTime>,
    /// Large messages between two ranks through shared memory, with the first distance.
    pub large: Vec<TransferTime>,
}

/// Reason why a file is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// Longer than a model can be.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// No JSON, or other values.
    #[error("{0}")]
    Syntax(#[from] serde_json::Error),
    /// Written by another version.
    #[error("its format is {0}, and this version reads {FORMAT}")]
    Format(u32),
    /// A time that is none, or sizes that do not grow.
    #[error("the times of {0} are no curve")]
    Curve(String),
    /// More distances or curves than a machine has.
    #[error("it has too many curves")]
    TooMany,
}

/// The version alone: files of other versions may have other fields.
#[derive(Deserialize)]
struct Header {
    format: u32,
}

impl MemoryModel {
    /// A model of a machine without anything that was predicted.
    pub fn new(machine: String, distances: Vec<DistanceModel>, kernels: Vec<KernelTime>) -> Self {
        Self {
            format: FORMAT,
            machine,
            distances,
            kernels,
            eager: Vec::new(),
            large: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Reason why the bytes are no model that can be used.
    pub fn read(bytes: &[u8]) -> Result<Self, ModelFileError> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ModelFileError::TooLong);
        }
        let Header { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(ModelFileError::Format(format));
        }
        let model: Self = serde_json::from_slice(bytes)?;
        let curves: usize = model.distances.iter().map(|one| one.accesses.len()).sum();
        if model.distances.len() > CURVES_MAX || curves > CURVES_MAX {
            return Err(ModelFileError::TooMany);
        }
        for known in model.distances.iter().flat_map(|one| &one.accesses) {
            if !known.curve.is_sound() {
                let (operation, state) = (known.access.operation.name(), known.access.state.name());
                return Err(ModelFileError::Curve(format!("{operation} ({state})")));
            }
        }
        let is_time = |ns: f64| ns.is_finite() && ns >= 0.0;
        let hand_offs = model.distances.iter().map(|one| one.hand_off_ns);
        let kernels = model
            .kernels
            .iter()
            .flat_map(|one| [one.measured_ns, one.predicted_ns]);
        let transfers = model.eager.iter().chain(&model.large);
        let transfers = transfers.flat_map(|one| [one.measured_ns, one.predicted_ns]);
        match hand_offs.chain(kernels).chain(transfers).all(is_time) {
            true => Ok(model),
            false => Err(ModelFileError::Curve("what was predicted".into())),
        }
    }

    /// Writes a file.
    ///
    /// # Errors
    /// A number that JSON does not have.
    pub fn write(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// Errors of predictions, as a share of what was measured, of kernels or of transfers.
    pub fn errors(measured_and_predicted: impl Iterator<Item = (f64, f64)>) -> PredictionErrors {
        let share = |(measured, predicted): (f64, f64)| (predicted / measured.max(1.0) - 1.0).abs();
        let mut errors: Vec<f64> = measured_and_predicted.map(share).collect();
        errors.sort_unstable_by(f64::total_cmp);
        PredictionErrors {
            count: errors.len(),
            median: errors.get(errors.len() / 2).copied().unwrap_or(0.0),
            worst: errors.last().copied().unwrap_or(0.0),
        }
    }
}

/// How far predictions are from what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PredictionErrors {
    /// Number of predictions.
    pub count: usize,
    /// Median, as a share.
    pub median: f64,
    /// Worst one, as a share.
    pub worst: f64,
}

/// Reads any bytes as a model, and uses it if it is one: the file is in a directory that others may
/// write.
pub fn read_anything(bytes: &[u8]) {
    let Ok(model) = MemoryModel::read(bytes) else {
        return;
    };
    for one in &model.distances {
        for bytes in [0, 1, 4096, 1 << 20, 1 << 40] {
            for kernel in crate::Kernel::ALL {
                for state in crate::CacheState::ALL {
                    let _ = kernel.predict(one, bytes, state);
                }
            }
        }
        let _ = crate::transfer::past_caches_from(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::model;
    use proptest::prelude::*;

    fn whole() -> MemoryModel {
        MemoryModel::new("a machine".into(), vec![model()], Vec::new())
    }

    #[test]
    fn a_model_is_read_as_it_was_written() {
        let model = whole();
        assert_eq!(MemoryModel::read(&model.write().unwrap()).unwrap(), model);
    }

    #[test]
    fn files_that_are_no_model_are_refused_with_the_reason() {
        let text = String::from_utf8(whole().write().unwrap()).unwrap();
        for (bad, word) in [
            (text.replace("\"format\":1", "\"format\":9"), "format is 9"),
            (
                text.replacen("\"bytes\":1024", "\"bytes\":1048576000", 1),
                "are no curve",
            ),
            (text[..text.len() / 2].to_owned(), "EOF"),
            ("[]".to_owned(), "invalid"),
            (String::new(), "EOF"),
            (" ".repeat(FILE_BYTES_MAX as usize + 1), "more than"),
        ] {
            let error = MemoryModel::read(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let errors =
            MemoryModel::errors([(100.0, 110.0), (100.0, 80.0), (100.0, 100.0)].into_iter());
        assert_eq!(errors.count, 3);
        assert!((errors.median - 0.1).abs() < 1e-9 && (errors.worst - 0.2).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_model_or_none(at: prop::sample::Index, byte: u8, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            read_anything(&bytes);
            let mut text = whole().write().unwrap();
            let at = at.index(text.len());
            text[at] = byte;
            read_anything(&text);
            read_anything(&text[..at]);
        }
    }

    #[test]
    fn kept_inputs_of_the_fuzz_target_do_no_harm() {
        let seeds = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fuzz/seeds/memory_model"
        );
        let mut count = 0;
        for entry in std::fs::read_dir(seeds).unwrap() {
            read_anything(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 2, "{count} inputs");
    }
}
