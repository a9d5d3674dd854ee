//! Files.
//!
//! Arguments of collective calls that are wrong go to the layer below as errors, so that the other
//! processes hear of them instead of waiting.

use crate::abi::Abi;
use crate::c_args::{Buf, Callback, CountOut, Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, Result};
use crate::callback::{DatarepCallbacks, DatarepFunction};
use crate::coll::elements;
use crate::constants::*;
use crate::group::publish_group;
use crate::handle::*;
use crate::objects::{
    comm, committed, datatype, info, info_or_null, infos, publish, publish_type, unknown_handle,
};
use crate::rank_context::RankContext;
use crate::request::return_request;
use crate::status::{StatusLayout, write_status};
use crate::{errhandler, init_state};
use garonne_mpi::coll::Elements;
use garonne_mpi::error::{Class, Error};
use garonne_mpi::file::{
    self, Access, AccessMode, Direction, File, OpenRequest, Place, SplitKind, Whence,
};
use garonne_mpi::info::Info;
use std::ffi::{OsString, c_int};
use std::path::PathBuf;

fn files() -> &'static HandleTable<File> {
    &RankContext::current().files
}

/// The file of a handle.
pub(crate) fn file(handle: MPI_File) -> Result<&'static File> {
    files()
        .get(handle)
        .ok_or_else(|| unknown_handle(Class::File, "file", handle.0, MPI_FILE_NULL.0))
}

/// Returns the file of a handle, or `None`.
pub(crate) fn find_file(handle: MPI_File) -> Option<&'static File> {
    files().get(handle)
}

/// The error without the edge's part, for a collective call that tells the others.
fn told<T>(decoded: Result<T>) -> Result<T, Error> {
    decoded.map_err(|fault| fault.error().clone())
}

/// A name of a file.
fn path(name: StrIn) -> Result<PathBuf> {
    let bytes = name.bytes()?;
    if bytes.is_empty() {
        return Err(CallError::new(
            Class::BadFile,
            "the name of the file is empty",
        ));
    }
    Ok(PathBuf::from(
        <OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes),
    ))
}

pub(crate) fn file_open(
    call: CallId,
    on: MPI_Comm,
    name: StrIn,
    mode: c_int,
    hints: MPI_Info,
    out: Ptr<MPI_File>,
) -> Result<()> {
    let name = told(path(name));
    let request = OpenRequest {
        name: name.as_deref().map_err(Clone::clone),
        mode: AccessMode(mode),
        info: told(info_or_null(hints)),
        errhandler: errhandler::of_null_file(),
    };
    let new = File::open(comm(on)?, request, call.origin())?;
    let handle: MPI_File = publish(files(), new)?;
    file(handle)?.set_handle(Handle::word(handle));
    out.set(handle)
}

pub(crate) fn file_close(call: CallId, place: Ptr<MPI_File>) -> Result<()> {
    let handle = place.get()?;
    file(handle)?.together(call.origin()).close()?;
    files().remove(handle);
    place.set(MPI_FILE_NULL)
}

pub(crate) fn file_delete(_: CallId, name: StrIn, hints: MPI_Info) -> Result<()> {
    info_or_null(hints)?;
    Ok(file::delete(&path(name)?)?)
}

pub(crate) fn file_get_amode(_: CallId, fh: MPI_File, mode: Ptr<c_int>) -> Result<()> {
    mode.set(file(fh)?.mode().0)
}

pub(crate) fn file_get_group(_: CallId, fh: MPI_File, out: Ptr<MPI_Group>) -> Result<()> {
    publish_group(file(fh)?.group().clone(), None, out)
}

pub(crate) fn file_get_info(_: CallId, fh: MPI_File, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(infos(), file(fh)?.info())?)
}

pub(crate) fn file_set_info(_: CallId, fh: MPI_File, with: MPI_Info) -> Result<()> {
    let file = file(fh)?;
    let with = match with == MPI_INFO_NULL {
        true => Info::new(),
        false => info(with)?.clone(),
    };
    file.set_info(&with);
    Ok(())
}

pub(crate) fn file_get_size(_: CallId, fh: MPI_File, size: Ptr<MPI_Offset>) -> Result<()> {
    size.set(file(fh)?.size()?)
}

pub(crate) fn file_set_size(call: CallId, fh: MPI_File, size: MPI_Offset) -> Result<()> {
    Ok(file(fh)?.together(call.origin()).set_size(size)?)
}

pub(crate) fn file_preallocate(call: CallId, fh: MPI_File, size: MPI_Offset) -> Result<()> {
    Ok(file(fh)?.together(call.origin()).preallocate(size)?)
}

pub(crate) fn file_sync(call: CallId, fh: MPI_File) -> Result<()> {
    Ok(file(fh)?.together(call.origin()).sync()?)
}

pub(crate) fn file_get_atomicity(_: CallId, fh: MPI_File, flag: Ptr<c_int>) -> Result<()> {
    flag.set(file(fh)?.is_atomic().into())
}

pub(crate) fn file_set_atomicity(call: CallId, fh: MPI_File, flag: c_int) -> Result<()> {
    Ok(file(fh)?.together(call.origin()).set_atomic(flag != 0)?)
}

pub(crate) fn file_seek(_: CallId, fh: MPI_File, offset: MPI_Offset, whence: c_int) -> Result<()> {
    Ok(file(fh)?.seek(offset, Whence::from_number(whence)?)?)
}

pub(crate) fn file_seek_shared(
    call: CallId,
    fh: MPI_File,
    offset: MPI_Offset,
    whence: c_int,
) -> Result<()> {
    let whence = Whence::from_number(whence);
    Ok(file(fh)?
        .together(call.origin())
        .seek_shared(offset, whence)?)
}

pub(crate) fn file_get_position(_: CallId, fh: MPI_File, out: Ptr<MPI_Offset>) -> Result<()> {
    out.set(file(fh)?.position()?)
}

pub(crate) fn file_get_position_shared(
    _: CallId,
    fh: MPI_File,
    out: Ptr<MPI_Offset>,
) -> Result<()> {
    out.set(file(fh)?.position_shared()?)
}

pub(crate) fn file_get_byte_offset(
    _: CallId,
    fh: MPI_File,
    offset: MPI_Offset,
    disp: Ptr<MPI_Offset>,
) -> Result<()> {
    disp.set(file(fh)?.byte_offset(offset)?)
}

pub(crate) fn file_get_type_extent(
    _: CallId,
    fh: MPI_File,
    handle: MPI_Datatype,
    extent: CountOut,
) -> Result<()> {
    extent.set_or_undefined(file(fh)?.type_extent(datatype(handle)?)?)
}

pub(crate) fn file_set_view(
    call: CallId,
    fh: MPI_File,
    disp: MPI_Offset,
    etype: MPI_Datatype,
    filetype: MPI_Datatype,
    representation: StrIn,
    hints: MPI_Info,
) -> Result<()> {
    let file = file(fh)?;
    let types = committed(etype).and_then(|etype| Ok((etype, committed(filetype)?)));
    let name = told(representation.text());
    let name = name.as_deref().map_err(Clone::clone);
    let info = told(info_or_null(hints));
    Ok(file
        .together(call.origin())
        .set_view(disp, told(types), (name, info))?)
}

pub(crate) fn file_get_view(
    _: CallId,
    fh: MPI_File,
    disp: Ptr<MPI_Offset>,
    etype: Ptr<MPI_Datatype>,
    filetype: Ptr<MPI_Datatype>,
    representation: StrOut,
) -> Result<()> {
    let (at, of_elements, of_file, name) = file(fh)?.get_view();
    representation.write(&name, MPI_MAX_DATAREP_STRING as usize)?;
    disp.set(at)?;
    // Types that the program made are its own to free, so it gets others.
    for (datatype, out) in [(of_elements, etype), (of_file, filetype)] {
        let given = match datatype.code() {
            Some(_) => datatype,
            None => datatype.dup()?,
        };
        out.set(publish_type(given)?)?;
    }
    Ok(())
}

/// An access of the program's.
fn access(
    direction: Direction,
    place: Place,
    (buf, count, datatype): (Buf, MPI_Count, MPI_Datatype),
) -> Access<'static> {
    let data: Result<Elements<'static>> = elements(buf, count, datatype);
    Access {
        direction,
        place,
        data: told(data),
    }
}

/// Defines accesses: blocking ones, for one process and for all, and those that return a request.
macro_rules! accesses {
    ($($direction:ident $blocking:ident $nonblocking:ident by $([$together:ident])? $method:ident $start:ident $(with $offset:ident)? => $place:expr;)*) => {
        $(
            pub(crate) fn $blocking<S: StatusLayout>(
                _call: CallId,
                fh: MPI_File,
                $($offset: MPI_Offset,)?
                buf: Buf,
                count: MPI_Count,
                datatype: MPI_Datatype,
                status: Ptr<S>,
            ) -> Result<()> {
                let file = file(fh)?;
                let access = access(Direction::$direction, $place, (buf, count, datatype));
                let done = file$(.$together(_call.origin()))?.$method(access)?;
                write_status(status, &done)
            }

            pub(crate) fn $nonblocking(
                _call: CallId,
                fh: MPI_File,
                $($offset: MPI_Offset,)?
                buf: Buf,
                count: MPI_Count,
                datatype: MPI_Datatype,
                out: Ptr<MPI_Request>,
            ) -> Result<()> {
                let access = access(Direction::$direction, $place, (buf, count, datatype));
                return_request(file(fh)?$(.$together(_call.origin()))?.$start(access)?, out)
            }
        )*
    };
}

accesses! {
    Read file_read_at file_iread_at by access start with offset => Place::At(offset);
    Write file_write_at file_iwrite_at by access start with offset => Place::At(offset);
    Read file_read file_iread by access start => Place::Individual;
    Write file_write file_iwrite by access start => Place::Individual;
    Read file_read_shared file_iread_shared by access start => Place::Shared;
    Write file_write_shared file_iwrite_shared by access start => Place::Shared;
    Read file_read_at_all file_iread_at_all by [together] access_all start_all with offset => Place::At(offset);
    Write file_write_at_all file_iwrite_at_all by [together] access_all start_all with offset => Place::At(offset);
    Read file_read_all file_iread_all by [together] access_all start_all => Place::Individual;
    Write file_write_all file_iwrite_all by [together] access_all start_all => Place::Individual;
}

/// Defines the ordered accesses.
macro_rules! ordered {
    ($($direction:ident: $name:ident;)*) => {
        $(
            pub(crate) fn $name<S: StatusLayout>(
                call: CallId,
                fh: MPI_File,
                buf: Buf,
                count: MPI_Count,
                datatype: MPI_Datatype,
                status: Ptr<S>,
            ) -> Result<()> {
                let file = file(fh)?;
                let access = access(Direction::$direction, Place::Shared, (buf, count, datatype));
                write_status(status, &file.together(call.origin()).access_ordered(access)?)
            }
        )*
    };
}

ordered! {
    Read: file_read_ordered;
    Write: file_write_ordered;
}

/// Defines both halves of the split collective accesses.
macro_rules! split {
    ($($direction:ident $kind:ident $(at $offset:ident)?: $begin:ident, $end:ident;)*) => {
        $(
            pub(crate) fn $begin(
                call: CallId,
                fh: MPI_File,
                $($offset: MPI_Offset,)?
                buf: Buf,
                count: MPI_Count,
                datatype: MPI_Datatype,
            ) -> Result<()> {
                let (kind, _offset) = (SplitKind::$kind, 0);
                $(let _offset = $offset;)?
                let access =
                    access(Direction::$direction, kind.place(_offset), (buf, count, datatype));
                Ok(file(fh)?.together(call.origin()).begin(kind, access)?)
            }

            pub(crate) fn $end<S: StatusLayout>(
                call: CallId,
                fh: MPI_File,
                _: Buf,
                status: Ptr<S>,
            ) -> Result<()> {
                let file = file(fh)?;
                let done = file.together(call.origin()).end(SplitKind::$kind, Direction::$direction)?;
                write_status(status, &done)
            }
        )*
    };
}

split! {
    Read All: file_read_all_begin, file_read_all_end;
    Write All: file_write_all_begin, file_write_all_end;
    Read AtAll at offset: file_read_at_all_begin, file_read_at_all_end;
    Write AtAll at offset: file_write_at_all_begin, file_write_at_all_end;
    Read Ordered: file_read_ordered_begin, file_read_ordered_end;
    Write Ordered: file_write_ordered_begin, file_write_ordered_end;
}

/// Registers a representation with its conversion functions for reads and writes.
fn register<A: Abi>(
    name: StrIn,
    [read, write]: [DatarepFunction<A>; 2],
    extent: Callback<A>,
    extra: Buf,
) -> Result<()> {
    let name = name.text()?;
    let process = init_state::process()?;
    let callbacks = DatarepCallbacks {
        read,
        write,
        extent,
        extra,
    };
    Ok(process.datareps.register(&name, Box::new(callbacks))?)
}

pub(crate) fn register_datarep<A: Abi>(
    _: CallId,
    name: StrIn,
    read: Callback<A>,
    write: Callback<A>,
    extent: Callback<A>,
    extra: Buf,
) -> Result<()> {
    register(name, [read, write].map(DatarepFunction::Int), extent, extra)
}

pub(crate) fn register_datarep_c<A: Abi>(
    _: CallId,
    name: StrIn,
    read: Callback<A>,
    write: Callback<A>,
    extent: Callback<A>,
    extra: Buf,
) -> Result<()> {
    register(
        name,
        [read, write].map(DatarepFunction::Large),
        extent,
        extra,
    )
}
