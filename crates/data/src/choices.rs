//! Choices that have names in files and flags.

/// Names the values of a choice, which is an enum without fields: `ALL`, `name` and `FromStr`.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($type:ident, $what:literal, [$($value:ident => $name:literal),* $(,)?]) => {
        impl $type {
            /// All of them.
            pub const ALL: &[$type] = &[$($type::$value),*];
            /// Returns the name in files and flags.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name),*
                }
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = ::tgnn::error::Error;
            fn from_str(s: &str) -> ::tgnn::error::Result<Self> {
                use ::tgnn::error::{Error, ErrorKind};
                let known = Self::ALL.iter().copied().find(|value| value.name() == s);
                known.ok_or_else(|| Error::unknown(ErrorKind::Usage, $what, s, &[$($name),*]))
            }
        }
    };
}
