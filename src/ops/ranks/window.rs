//! The kernels that move rows through windows, which `exchange_rows` and `exchange_ids` share.
use crate::{
    error::Result,
    ops::{Grid, Kernels, Launch},
    runtime::{
        comm::TrafficKind,
        cuda::{Window, abi},
    },
};

/// Bytes of the unit in which rows are moved.
pub(in crate::ops) const UNIT: usize = 2;
/// Alignment of what comes after the head of a window, in bytes.
pub(in crate::ops) const REGION_ALIGN: usize = 16;
/// Ranks that kernels have memory for.
const MOST_RANKS: usize = 256;

/// What the head of a window says: how many rows each rank gets.
pub(in crate::ops) struct WindowHead {
    /// Device address of the rows for each rank; null if all ranks get all rows.
    pub counts: *const u32,
    /// All rows.
    pub rows: abi::Rows,
    /// Bytes of a row.
    pub width: usize,
    /// Bytes that are counted besides.
    pub extra: usize,
    /// As what the bytes are counted.
    pub kind: TrafficKind,
}

impl WindowHead {
    /// Returns the bytes of a head, after which rows may begin.
    ///
    /// # Panics
    /// If there are more ranks than kernels have memory for.
    pub fn bytes(ranks: usize, tables: usize) -> usize {
        assert!(ranks <= MOST_RANKS, "{ranks} ranks of one process, at most {MOST_RANKS}");
        ((ranks + 1 + tables) * size_of::<u32>()).next_multiple_of(REGION_ALIGN)
    }
    /// Launches the kernel that writes the head.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    ///
    /// # Safety
    /// As [`Op::launch`](super::Op::launch); the addresses in the fields are those of operands.
    pub unsafe fn write(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        let (head, sent) = (window.address() as *mut u32, window.sent(self.kind));
        let (width, extra) = (self.width as u32, self.extra as u32);
        let (grid, all) = (Grid::new(1, 32), window.blocks());
        launch!(
            k, on, count_rows[grid];
            self.counts, self.rows, head, all, sent, width, extra, on.status()
        )
    }
}

/// Rows of a table that a rank writes to its window.
pub(in crate::ops) struct WindowRows {
    /// Number of the table.
    pub table: usize,
    /// Device address of the table's rows.
    pub from: *const u16,
    /// Number of the table's rows.
    pub of: abi::Rows,
    /// Device address of the rows to write, or null: all, in order.
    pub index: *const u32,
    /// Number of rows to write.
    pub rows: abi::Rows,
    /// First byte in the window.
    pub begin: usize,
    /// Units of a row.
    pub units: usize,
}

impl WindowRows {
    /// Launches the kernel that writes the rows.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    ///
    /// # Safety
    /// As [`Op::launch`](super::Op::launch); the addresses in the fields are those of operands.
    pub unsafe fn write(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        let &WindowRows { table, from, of, index, rows, begin, units } = self;
        let (grid, head) = (Grid::warps(rows.capacity as usize), window.address() as *mut u32);
        let (at, begin) = (window.blocks().ranks + 1 + table as u32, (begin / REGION_ALIGN) as u32);
        launch!(
            k, on, write_rows_to_window[grid];
            from, index, head, at, begin, rows, of, units as u32, on.status()
        )
    }
}

/// The parts of all windows that a rank reads.
pub(in crate::ops) struct WindowParts {
    /// Number of the table.
    pub table: usize,
    /// Whether all ranks read all rows.
    pub to_all: bool,
    /// Device address of the rows that arrive from each rank; null if that is not known.
    pub expected: *const u32,
    /// Device address that receives the rows from each rank, or null.
    pub counts: *mut u32,
    /// Device address that receives the number of rows, or null.
    pub count: *mut u32,
    /// Device address that receives the rows.
    pub out: *mut u16,
    /// Rows that there is memory for.
    pub capacity: usize,
    /// Units of a row, or numbers if they are of 16 bits.
    pub units: usize,
    /// 0 for units, else 1 plus the format of 16-bit numbers, which are widened.
    pub kind: u32,
    /// Whether this is the last kernel of the collective.
    pub is_last: bool,
}

impl WindowParts {
    /// Launches the kernel that reads the rows.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    ///
    /// # Safety
    /// As [`Op::launch`](super::Op::launch); the addresses in the fields are those of operands.
    pub unsafe fn read(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        let progress = if self.is_last { window.progress() } else { std::ptr::null_mut() };
        launch!(
            k, on, read_rows_from_windows[Grid::warps(self.capacity)];
            window.blocks(), self.table as u32, u32::from(self.to_all), self.expected, self.counts, self.count,
            self.out, self.capacity as u32, self.units as u32, self.kind, progress, on.status()
        )
    }
}
