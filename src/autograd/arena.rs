//! Plans the places of a step's values in one block of memory.

/// Alignment of values in the arena, in bytes: a cache line, which is also the width of the widest vector
/// register.
pub(super) const ALIGN: usize = 64;

/// Places in an arena, by first fit among the values that are alive at the same time.
#[derive(Clone, Default)]
pub(super) struct ArenaPlan {
    /// Offset, end and last use of each value that is still alive, sorted by offset.
    blocks: Vec<(usize, usize, usize)>,
    size: usize,
    /// Whether every value gets its own block of memory, so that tests detect accesses beyond a value's end.
    apart: bool,
    /// Bytes of each value, if values are kept apart.
    sizes: Vec<usize>,
}

impl ArenaPlan {
    /// Returns an empty plan. `apart` gives every value its own block of memory.
    pub fn new(apart: bool) -> Self {
        ArenaPlan { apart, ..Self::default() }
    }
    /// Returns the size of the arena in bytes.
    pub fn size(&self) -> usize {
        self.size
    }
    /// Returns the sizes in bytes of the blocks of memory to allocate: a single one, or one for each value.
    pub fn blocks(&self) -> Vec<usize> {
        if self.apart { self.sizes.clone() } else { vec![self.size] }
    }
    /// Reserves `bytes` for a value that is alive from node `from` to node `until`, both included. Returns
    /// the value's offset in the arena, or the index of its block if values are kept apart. Calls must come
    /// in ascending order of `from`.
    pub fn place(&mut self, bytes: usize, from: usize, until: usize) -> usize {
        if self.apart {
            self.sizes.push(bytes);
            return self.sizes.len() - 1;
        }
        self.blocks.retain(|&(_, _, last_use)| last_use >= from);
        let bytes = bytes.next_multiple_of(ALIGN);
        let mut offset = 0;
        let mut index = self.blocks.len();
        for (i, &(block_offset, block_end, _)) in self.blocks.iter().enumerate() {
            if offset + bytes <= block_offset {
                index = i;
                break;
            }
            offset = offset.max(block_end);
        }
        self.blocks.insert(index, (offset, offset + bytes, until));
        self.size = self.size.max(offset + bytes);
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::ArenaPlan;

    #[test]
    fn values_alive_together_never_overlap_and_freed_memory_is_reused() {
        let mut plan = ArenaPlan::default();
        let mut placed: Vec<(usize, usize, usize)> = Vec::new();
        for at in 0..200 {
            let (bytes, until) = ((at * 37) % 300, at + (at * 13) % 7);
            let offset = plan.place(bytes, at, until);
            for &(other_offset, other_bytes, other_until) in &placed {
                let dead = other_until < at;
                assert!(
                    dead || offset + bytes <= other_offset || other_offset + other_bytes <= offset,
                    "node {at}"
                );
            }
            placed.push((offset, bytes, until));
        }
        assert!(plan.size < 3000, "{}", plan.size);
    }
}
