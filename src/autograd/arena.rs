//! Where the values of a step lie: fixed places in one block of memory.

/// Bytes that blocks of the arena are aligned to: a cache line, a vector register.
pub(super) const ALIGN: usize = 64;

/// Places in an arena: first fit among what is alive at the same time.
#[derive(Default)]
pub(super) struct ArenaPlan {
    /// Offset, end, last use; sorted by offset.
    blocks: Vec<(usize, usize, usize)>,
    size: usize,
    /// Whether every value gets a block of its own: tests find an access beyond it.
    apart: bool,
    sizes: Vec<usize>,
}

impl ArenaPlan {
    /// An empty one; `apart` gives every value a block of its own.
    pub fn new(apart: bool) -> Self {
        ArenaPlan { apart, ..Self::default() }
    }
    /// Bytes of the arena.
    pub fn size(&self) -> usize {
        self.size
    }
    /// Bytes of each block of memory that it wants: one, or one a value.
    pub fn blocks(&self) -> Vec<usize> {
        if self.apart { self.sizes.clone() } else { vec![self.size] }
    }
    /// Room for `bytes` from node `from` to node `until`, both included. Nodes come in ascending order.
    pub fn place(&mut self, bytes: usize, from: usize, until: usize) -> usize {
        if self.apart {
            self.sizes.push(bytes);
            return self.sizes.len() - 1;
        }
        self.blocks.retain(|b| b.2 >= from);
        let bytes = bytes.next_multiple_of(ALIGN);
        let mut offset = 0;
        let mut index = self.blocks.len();
        for (i, b) in self.blocks.iter().enumerate() {
            if offset + bytes <= b.0 {
                index = i;
                break;
            }
            offset = offset.max(b.1);
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
    fn blocks_alive_together_never_overlap_and_dead_room_is_used_again() {
        let mut plan = ArenaPlan::default();
        let mut all: Vec<(usize, usize, usize, usize)> = Vec::new();
        for at in 0..200 {
            let (bytes, until) = ((at * 37) % 300, at + (at * 13) % 7);
            let offset = plan.place(bytes, at, until);
            for &(o, b, _, u) in &all {
                assert!(u < at || offset + bytes <= o || o + b <= offset, "node {at}");
            }
            all.push((offset, bytes, at, until));
        }
        assert!(plan.size < 3000, "{}", plan.size);
    }
}
