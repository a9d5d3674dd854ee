# Sourced by ./x: builds the release and lays it out under a prefix.

# The release profile of everything that is installed.
build_dist() {
    say "building (profile dist)"
    cargo build --profile dist --workspace --bins --lib
}
install_into() { die "installing is not written yet"; }
