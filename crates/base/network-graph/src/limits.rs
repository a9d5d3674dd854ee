//! Limits of what is read.

/// Hosts of a list as Slurm writes it: as many as a job may have.
pub const HOSTS_MAX: usize = 1 << 17;

/// Hosts and switches of a graph: those of the largest machines, twice.
pub const VERTICES_MAX: usize = 200_000;

/// Links of a graph: five for each host and switch.
pub const LINKS_MAX: usize = 1_000_000;

/// Characters of a name: what LLDP and the domain name system allow.
pub const NAME_MAX: usize = 255;

/// Hosts of a matrix of measurements. A matrix has so many squared entries.
pub const MEASURED_MAX: usize = 1024;
