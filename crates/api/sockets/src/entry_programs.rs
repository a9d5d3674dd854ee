//! Entry points that start programs: a listening socket that another program inherits takes no more
//! offers, since that program does not know of its mailbox.

use crate::transfer::{errno, fail};
use crate::{mailbox, real};
use libc::{c_char, c_int, c_void};

type Words = *const *const c_char;

fn before_program() {
    let before = errno();
    mailbox::retire_inherited();
    fail(before);
}

macro_rules! program {
    ($(fn $name:ident = $entry:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $entry($($argument: $type),*) -> c_int {
            before_program();
            // SAFETY: the program's own arguments.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}

program! {
    fn execv = garonne_execv(path: *const c_char, words: Words);
    fn execve = garonne_execve(path: *const c_char, words: Words, environment: Words);
    fn execvp = garonne_execvp(path: *const c_char, words: Words);
    fn execvpe = garonne_execvpe(path: *const c_char, words: Words, environment: Words);
    fn fexecve = garonne_fexecve(file: c_int, words: Words, environment: Words);
    fn posix_spawn = garonne_posix_spawn(process: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, words: Words, environment: Words);
    fn posix_spawnp = garonne_posix_spawnp(process: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, words: Words, environment: Words);
}
