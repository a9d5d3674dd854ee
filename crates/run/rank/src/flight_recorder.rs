//! The area in which a rank records its last events for readers after its death.
//!
//! A rank makes the area when it joins its job and hands the descriptor to its agent, which keeps
//! it while the job runs. `garonne-inspect` reads it.

use std::os::fd::AsFd;
use std::sync::Arc;

use garonne_engine::observe::post_mortem;
use garonne_job::error::Result;
use garonne_job::settings::ENV_RECORD;
use garonne_job::settings::record::is_wanted;
use garonne_sync::post_mortem::PostMortemArea;

use crate::client::AgentClient;

/// The area of this rank, whose file its agent has now; `None` if none is wanted or to be had: the
/// rank does without.
///
/// # Errors
/// The setting says what it may not.
pub(crate) fn area_of(client: &AgentClient) -> Result<Option<Arc<PostMortemArea>>> {
    if !is_wanted(&std::env::var_os(ENV_RECORD).unwrap_or_default())? {
        return Ok(None);
    }
    let made = PostMortemArea::new(&post_mortem::header(), &post_mortem::slots());
    Ok(made.ok().map(|(area, file)| {
        client.send_flight_recorder(file.as_fd());
        area
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_has_two_words_and_names_them() {
        assert!(is_wanted("".as_ref()).unwrap() && is_wanted("on".as_ref()).unwrap());
        assert!(!is_wanted(" off".as_ref()).unwrap());
        let error = is_wanted("of".as_ref()).unwrap_err().to_string();
        assert!(error.contains("on, off"), "{error}");
    }
}
