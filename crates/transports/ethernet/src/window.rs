//! How many pieces may be under way to a peer: a congestion window for switches.
//!
//! Owned by the [`PeerLink`](crate::peer_link::PeerLink). A switch's queue holds a few windows, and
//! a piece is lost where several senders meet. So the window gives up a quarter once for all that
//! was lost of one window, never goes below an eighth, and grows by one piece for each window that
//! arrives. One loss costs little, and many senders share a port.

use garonne_engine::reliable::WINDOW;

/// Pieces that may be under way whatever is lost.
const LEAST: usize = WINDOW / 8;

#[derive(Debug)]
pub(crate) struct Window {
    pieces: usize,
    /// Pieces that arrived since the window grew last.
    arrived: usize,
    /// Losses of pieces before this number narrow the window no more.
    narrowed_until: u64,
}

impl Window {
    pub fn new() -> Self {
        Self {
            pieces: WINDOW,
            arrived: 0,
            narrowed_until: 0,
        }
    }

    /// Returns how many pieces may be under way.
    pub fn pieces(&self) -> usize {
        self.pieces
    }

    /// Widens the window by pieces that arrived.
    pub fn arrived(&mut self, pieces: usize) {
        self.arrived += pieces;
        if self.arrived >= self.pieces {
            self.arrived = 0;
            self.pieces = (self.pieces + 1).min(WINDOW);
        }
    }

    /// A piece not before `oldest` was lost; `next` is the number of the next to be sent.
    pub fn lost(&mut self, oldest: u64, next: u64) {
        if oldest >= self.narrowed_until {
            self.pieces = (self.pieces * 3 / 4).max(LEAST);
            self.narrowed_until = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_costs_a_quarter_once_and_comes_back() {
        let mut window = Window::new();
        for _ in 0..20 {
            window.lost(0, 64);
        }
        assert_eq!(window.pieces(), WINDOW * 3 / 4);
        window.arrived(10 * WINDOW);
        (0..20 * WINDOW).for_each(|_| window.arrived(1));
        assert_eq!(window.pieces(), WINDOW);
    }

    #[test]
    fn whatever_is_lost_some_pieces_may_leave() {
        let mut window = Window::new();
        (0..1000).for_each(|number| window.lost(number, number + 1));
        assert_eq!(window.pieces(), LEAST);
    }
}
