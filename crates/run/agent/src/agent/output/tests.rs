//! Lines of several ranks in one sink: whole, marked once, and none lost.

use super::*;

fn stream(tags: OutputTags) -> RankStream {
    stream_of(3, tags)
}

fn stream_of(rank: u32, tags: OutputTags) -> RankStream {
    let (read, _write) = rustix::pipe::pipe().unwrap();
    RankStream::new(
        OutputSource::Pipe(read),
        rank,
        StreamKind::Out,
        LineMarks {
            tags,
            stamps: OutputTimes::None,
            colour: TagColour::Never,
        },
    )
}

/// A sink that only collects: with something pending it never writes.
fn collector() -> OutputSink {
    let mut sink = OutputSink::new(StreamKind::Out);
    sink.pending.push(b'|');
    sink
}

#[test]
fn only_whole_lines_pass_until_the_rest_is_due() {
    let (mut stream, mut sink) = (stream(OutputTags::None), collector());
    stream.feed(b"one\ntw", &mut sink);
    assert_eq!(sink.pending, b"|one\n");
    assert!(stream.due().is_some());
    stream.feed(b"o\n", &mut sink);
    assert_eq!(sink.pending, b"|one\ntwo\n");
    assert!(stream.due().is_none());
}

#[test]
fn every_line_is_tagged_once_also_when_it_comes_in_parts() {
    let (mut stream, mut sink) = (stream(OutputTags::Rank), collector());
    stream.feed(b"a\nb\nprompt", &mut sink);
    stream.emit(&mut sink);
    stream.feed(b" rest\nc\n", &mut sink);
    assert_eq!(sink.pending, b"|[3] a\n[3] b\n[3] prompt rest\n[3] c\n");
}

#[test]
fn the_two_streams_of_a_rank_do_not_share_a_line_of_one_sink() {
    let (mut out, mut sink) = (stream_of(1, OutputTags::None), collector());
    let mut err = stream_of(1, OutputTags::None);
    err.voice.kind = StreamKind::Err;
    out.feed(b"prompt", &mut sink);
    out.emit(&mut sink);
    err.feed(b"warning\n", &mut sink);
    out.feed(b"rest\n", &mut sink);
    assert_eq!(sink.pending, b"|prompt\nwarning\nrest\n");
}

#[test]
fn a_shown_part_of_a_line_is_ended_before_another_rank_speaks_and_its_rest_is_tagged_again() {
    let (mut one, mut two, mut sink) = (
        stream_of(1, OutputTags::Rank),
        stream_of(2, OutputTags::Rank),
        collector(),
    );
    one.feed(b"part", &mut sink);
    one.emit(&mut sink);
    two.feed(b"line\n", &mut sink);
    one.feed(b"done\nlast", &mut sink);
    one.end(&mut sink);
    two.feed(b"more\nlast", &mut sink);
    two.end(&mut sink);
    sink.say("end");
    assert_eq!(
        String::from_utf8_lossy(&sink.pending),
        "|[1] part\n[2] line\n[1] done\n[1] last\n[2] more\n[2] last\nend\n"
    );
}

#[test]
fn without_tags_the_last_bytes_of_ranks_stay_as_they_are_but_an_open_line_is_ended() {
    let (mut one, mut two, mut sink) = (
        stream_of(1, OutputTags::None),
        stream_of(2, OutputTags::None),
        collector(),
    );
    one.feed(b"part", &mut sink);
    one.emit(&mut sink);
    two.feed(b"line\nx", &mut sink);
    two.end(&mut sink);
    one.feed(b"y", &mut sink);
    one.end(&mut sink);
    assert_eq!(sink.pending, b"|part\nline\nxy");
}

#[test]
fn others_wait_with_bounded_memory_while_a_long_line_passes_and_then_one_after_the_other() {
    let (mut one, mut two, mut three) = (
        stream_of(1, OutputTags::Rank),
        stream_of(2, OutputTags::Rank),
        stream_of(3, OutputTags::Rank),
    );
    let mut sink = collector();
    one.feed(&[b'a'; LINE_BYTES_MAX], &mut sink);
    three.feed(b"short\npart", &mut sink);
    while !two.is_full() {
        two.feed(&[b'b'; 1000], &mut sink);
    }
    assert!(two.line.len() < LINE_BYTES_MAX + 1000 && !sink.is_turn_of_others());
    one.feed(b"a\n", &mut sink);
    assert!(sink.is_turn_of_others());
    sink.waited_for = false;
    two.resume(&mut sink);
    three.resume(&mut sink);
    assert!(!sink.is_turn_of_others(), "the second has a long line, too");
    two.feed(b"b\n", &mut sink);
    assert!(sink.is_turn_of_others());
    three.resume(&mut sink);
    let text = String::from_utf8(sink.pending.clone()).unwrap();
    let lines: Vec<_> = text.lines().map(|line| (&line[..5], line.len())).collect();
    let (long, longer) = (
        LINE_BYTES_MAX + 6,
        LINE_BYTES_MAX.next_multiple_of(1000) + 5,
    );
    assert_eq!(lines[0], ("|[1] ", long));
    assert_eq!((lines[1], lines[2]), (("[2] b", longer), ("[3] s", 9)));
    assert_eq!((lines.len(), three.due().is_some()), (3, true));
}

#[test]
fn a_rank_that_never_ends_its_line_does_not_silence_the_others() {
    let (mut one, mut two, mut sink) = (
        stream_of(1, OutputTags::None),
        stream_of(2, OutputTags::None),
        collector(),
    );
    one.feed(&[b'a'; LINE_BYTES_MAX], &mut sink);
    two.feed(b"line\n", &mut sink);
    sink.look_at_pass(Instant::now() + LINE_PASSES_WAIT);
    assert!(sink.is_turn_of_others());
    two.resume(&mut sink);
    assert!(sink.pending.ends_with(b"a\nline\n"));
}

#[test]
fn a_line_without_end_does_not_grow_without_bound() {
    let (mut stream, mut sink) = (stream(OutputTags::None), collector());
    for _ in 0..100 {
        stream.feed(&[b'x'; 4096], &mut sink);
        assert!(stream.line.len() < LINE_BYTES_MAX);
    }
    stream.emit(&mut sink);
    assert_eq!(sink.pending.len(), 1 + 409_600);
}
