//! Who asks what the ranks of other hosts show, and what of it: part of what agents say to each
//! other (docs/formats-job.md, D13 and D14).

use crate::error::Result;
use crate::wire::{Reader, Writer, damaged};

/// Who wants to know what ranks show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The node where it was asked.
    pub at: u32,
    /// Which of those who ask there.
    pub number: u32,
}

/// What is to be seen of the ranks of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// What each does and waits for.
    #[default]
    Standing,
    /// What each has used and sent so far.
    Load,
    /// The host's clock: its agent answers itself.
    Clock,
    /// All that they record from now on, for so many milliseconds; 0: until they end.
    Records {
        /// How long.
        ms: u32,
    },
    /// All that they record, from the beginning to their end, in a job that is traced as a whole.
    All,
    /// Nothing any more: who asked has gone.
    NoMore,
    /// What a command says of them, in its own words.
    Page(Page, Form),
}

/// A command that can be asked for on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `garonne why gate` of this rank: on its host alone.
    Gate(u32),
    /// `garonne rail`.
    Rail,
    /// `garonne why paces`.
    Paces,
    /// `garonne why background`.
    Background,
    /// `garonne map`.
    Map,
}

/// In which form it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Words,
    /// For programs.
    Json,
}

impl Form {
    /// JSON, if that is asked for.
    pub fn json_if(asked: bool) -> Self {
        if asked { Form::Json } else { Form::Words }
    }
}

impl Wish {
    fn code(self) -> (u8, u32) {
        match self {
            Wish::Standing => (0, 0),
            Wish::Load => (1, 0),
            Wish::Clock => (2, 0),
            Wish::Records { ms } => (3, ms),
            Wish::NoMore => (4, 0),
            Wish::All => (5, 0),
            Wish::Page(Page::Gate(rank), Form::Words) => (6, rank),
            Wish::Page(Page::Gate(rank), Form::Json) => (7, rank),
            Wish::Page(Page::Rail, form) => (8, form as u32),
            Wish::Page(Page::Paces, form) => (9, form as u32),
            Wish::Page(Page::Background, form) => (10, form as u32),
            Wish::Page(Page::Map, form) => (11, form as u32),
        }
    }

    fn of_code(kind: u8, ms: u32) -> Option<Self> {
        let wish = match kind {
            0 => Wish::Standing,
            1 => Wish::Load,
            2 => Wish::Clock,
            3 => Wish::Records { ms },
            4 => Wish::NoMore,
            5 => Wish::All,
            6 => Wish::Page(Page::Gate(ms), Form::Words),
            7 => Wish::Page(Page::Gate(ms), Form::Json),
            8 => Wish::Page(Page::Rail, Form::json_if(ms == 1)),
            9 => Wish::Page(Page::Paces, Form::json_if(ms == 1)),
            10 => Wish::Page(Page::Background, Form::json_if(ms == 1)),
            11 => Wish::Page(Page::Map, Form::json_if(ms == 1)),
            _ => return None,
        };
        (wish.code().1 == ms).then_some(wish)
    }

    /// As the program that looks for an agent is told it.
    pub fn word(self) -> String {
        let (kind, ms) = self.code();
        format!("{kind}:{ms}")
    }

    /// What such a word means.
    pub fn of_word(word: &str) -> Option<Self> {
        let (kind, ms) = word.split_once(':')?;
        Self::of_code(kind.parse().ok()?, ms.parse().ok()?)
    }

    /// Whether a host says many things of it, one after the other, until one that is empty.
    pub fn is_stream(self) -> bool {
        matches!(self, Wish::Records { .. } | Wish::All)
    }
}

pub(crate) fn put_asked(writer: Writer, asked: &Asked) -> Writer {
    writer
        .raw(asked.at.to_le_bytes())
        .raw(asked.number.to_le_bytes())
}

pub(crate) fn asked(r: &mut Reader<'_>) -> Result<Asked> {
    Ok(Asked {
        at: r.u32()?,
        number: r.u32()?,
    })
}

pub(crate) fn put_wish(writer: Writer, wish: Wish) -> Writer {
    let (kind, ms) = wish.code();
    writer.raw([kind]).raw(ms.to_le_bytes())
}

pub(crate) fn wish(r: &mut Reader<'_>) -> Result<Wish> {
    let ([kind], ms) = (r.raw()?, r.u32()?);
    Wish::of_code(kind, ms).ok_or_else(|| damaged("nobody can look for that"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_as_it_was_told_and_what_is_none_is_refused() {
        for wish in [
            Wish::Standing,
            Wish::Load,
            Wish::Clock,
            Wish::Records { ms: 5000 },
            Wish::Records { ms: 0 },
            Wish::NoMore,
            Wish::All,
            Wish::Page(Page::Gate(7), Form::Words),
            Wish::Page(Page::Gate(0), Form::Json),
            Wish::Page(Page::Rail, Form::Json),
            Wish::Page(Page::Paces, Form::Words),
            Wish::Page(Page::Background, Form::Json),
            Wish::Page(Page::Map, Form::Words),
            Wish::Page(Page::Map, Form::Json),
        ] {
            assert_eq!(Wish::of_word(&wish.word()), Some(wish));
        }
        for wrong in [
            "",
            "1",
            "1:1",
            "9:2",
            "11:2",
            "12:0",
            "3:-1",
            "3:99999999999",
            "x:0",
        ] {
            assert_eq!(Wish::of_word(wrong), None, "{wrong}");
        }
    }
}
