//! How large data are divided among the paths of a pair: the strategy, and with which rates paths
//! begin.
//!
//! Owned by the transport; set by whoever makes it, before large data come.

use garonne_engine::api::Peer;
use garonne_engine::schedule::plugin::CheckedPlugin;
use garonne_engine::schedule::stripe::StripePolicy;
use std::sync::Arc;

/// Way in which data are split: as the built-in strategy does, or as the one does that was loaded,
/// with the peer.
pub(crate) type StripeRule<'a> = (StripePolicy, Option<(&'a CheckedPlugin, Peer)>);

/// Settings for dividing large data among paths.
///
/// Owned by the transport. [`StripeSettings::rule`] is asked whenever something is to be read.
#[derive(Debug, Default)]
pub(crate) struct StripeSettings {
    policy: StripePolicy,
    /// Strategy that is asked before the built-in one.
    plugin: Option<Arc<CheckedPlugin>>,
    /// Paths begin with no rate that was measured another time.
    measures_anew: bool,
}

impl StripeSettings {
    /// Sets the built-in strategy.
    pub(crate) fn set_policy(&mut self, policy: StripePolicy) {
        self.policy = policy;
    }

    /// Sets the strategy that is asked first, if it decides about this.
    pub(crate) fn set_plugin(&mut self, plugin: Option<Arc<CheckedPlugin>>) {
        self.plugin = plugin;
    }

    /// From now on paths begin with nothing but what this transport finds itself.
    pub(crate) fn measure_anew(&mut self) {
        self.measures_anew = true;
    }

    /// Returns whether paths begin with no rate that was measured another time.
    pub(crate) fn measures_anew(&self) -> bool {
        self.measures_anew
    }

    /// Returns how data from a peer are split.
    pub(crate) fn rule(&self, peer: Peer) -> StripeRule<'_> {
        let plugin = self.plugin.as_deref();
        (self.policy, plugin.map(|plugin| (plugin, peer)))
    }
}
