//! Names of MPI calls by the numbers under which ranks publish them: the order of the table that
//! the library is made from.

const TABLE: &str = include_str!("../../../mpi/abi-gen/abi/functions.txt");

/// The name of call `number` (from 1); `None` for a number that the table does not have.
pub fn name(number: u32) -> Option<&'static str> {
    let mut prototypes = TABLE.lines().filter(|line| line.starts_with(['+', '-']));
    let prototype = prototypes.nth((number as usize).checked_sub(1)?)?;
    prototype.split('(').next()?.rsplit([' ', '*']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names_in_the_order_of_the_table() {
        assert_eq!(name(0), None);
        assert_eq!(name(1), Some("MPI_Buffer_attach"));
        assert_eq!(name(2), Some("MPI_Buffer_attach_c"));
        assert_eq!(name(u32::MAX), None);
        let all: Vec<_> = (1..).map_while(name).collect();
        assert!(all.len() > 600 && all.iter().all(|name| name.starts_with("MPI")));
    }
}
