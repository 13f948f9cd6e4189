//! Why an attempt failed, in the classes that the coordinator reacts to.

use std::fmt;

/// The reaction that a failure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureClass {
    /// A store or network fault that may pass: try again.
    Transient,
    /// The process that decoded died or ran out of memory.
    WorkerLost,
    /// An input is not the object that the plan pinned.
    InputChanged,
    /// An input is gone.
    InputMissing,
    /// An input is not a readable Parquet file.
    InputCorrupt,
    /// An input's schema does not fit the job's.
    SchemaMismatch,
    /// A feature that Baler refuses rather than guesses.
    Unsupported,
    /// A rule of this installation forbids it (a link out of the root, a size cap).
    Policy,
    /// The output's rows are not the inputs' rows.
    FingerprintMismatch,
    /// The attempt was stopped on request.
    Cancelled,
}

impl FailureClass {
    /// Whether another attempt of the same job can help.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Transient | Self::WorkerLost | Self::FingerprintMismatch | Self::Cancelled)
    }

    /// The stable code that messages and records carry.
    pub fn code(self) -> &'static str {
        match self {
            Self::Transient => "TRANSIENT",
            Self::WorkerLost => "WORKER_LOST",
            Self::InputChanged => "INPUT_CHANGED",
            Self::InputMissing => "INPUT_MISSING",
            Self::InputCorrupt => "INPUT_CORRUPT",
            Self::SchemaMismatch => "SCHEMA_MISMATCH",
            Self::Unsupported => "UNSUPPORTED",
            Self::Policy => "POLICY",
            Self::FingerprintMismatch => "FINGERPRINT_MISMATCH",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The class of a code, for records read back.
    pub fn from_code(code: &str) -> Option<Self> {
        use FailureClass::*;
        [
            Transient,
            WorkerLost,
            InputChanged,
            InputMissing,
            InputCorrupt,
            SchemaMismatch,
            Unsupported,
            Policy,
            FingerprintMismatch,
            Cancelled,
        ]
        .into_iter()
        .find(|class| class.code() == code)
    }
}

/// A failure that names what it is about and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    /// The file it is about, as the user knows it; empty when it is about no single file.
    pub file: String,
    /// Dotted path of the column; empty when it is about no single column.
    pub column: String,
    /// What happened and what to do: lowercase, no full stop.
    pub message: String,
}

impl Failure {
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, file: String::new(), column: String::new(), message: message.into() }
    }

    /// The same failure, about `file` (unless a file is named already).
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        if self.file.is_empty() {
            self.file = file.into();
        }
        self
    }

    /// The same failure, about `column` (unless a column is named already).
    pub fn in_column(mut self, column: impl Into<String>) -> Self {
        if self.column.is_empty() {
            self.column = column.into();
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.class.code())?;
        if !self.file.is_empty() {
            write!(f, "{}: ", self.file)?;
        }
        if !self.column.is_empty() {
            write!(f, "column {}: ", self.column)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
