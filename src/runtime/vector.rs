//! Vector code for ops outside of this crate: [`vectorised!`](crate::vectorised), and functions that its
//! bodies may call because they are inlined.
pub use super::simd::{Level, cos, exp, level, recip, sigmoid, sin_cos, softplus, sqrt, tanh};
pub use crate::vectorised;

/// Defines functions whose bodies are compiled for every
/// [instruction set](crate::runtime::vector::Level), so that the compiler vectorises their loops for the
/// processor at hand. Functions that the bodies call must be `#[inline(always)]`, such as those of
/// [`runtime::vector`](crate::runtime::vector).
///
/// ```
/// tgnn::vectorised! {
///     /// Squashes every number.
///     fn squash(x: &mut [f32]) {
///         for x in x {
///             *x = tgnn::runtime::vector::tanh(*x);
///         }
///     }
/// }
/// let mut x = [0.0, 100.0];
/// squash(&mut x);
/// assert_eq!(x, [0.0, 1.0]);
/// ```
#[macro_export]
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                match $crate::runtime::vector::level() {
                    // SAFETY: `level` found these features on this processor.
                    $crate::runtime::vector::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::runtime::vector::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::runtime::vector::Level::Baseline => {}
                }
            }
            body($($arg),*)
        }
    )+};
}
