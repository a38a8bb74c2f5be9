//! `Debug` of large types, in a line.

/// Implements `Debug` for a type whose fields would fill pages: prints the given values only.
#[doc(hidden)]
#[macro_export]
macro_rules! brief_debug {
    ($type:ident $(<$life:lifetime>)?, $this:ident => { $($name:ident: $value:expr),* $(,)? }) => {
        impl std::fmt::Debug for $type $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($type))$(.field(stringify!($name), &$value))*.finish_non_exhaustive()
            }
        }
    };
}
#[doc(hidden)]
pub use brief_debug;
