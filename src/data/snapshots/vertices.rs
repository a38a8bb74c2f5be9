//! Vertices by the names and ids of their data set.
use super::Snapshots;
use crate::{
    data::text::grouped,
    error::{Error, Result},
};
use std::collections::HashMap;

impl Snapshots {
    /// Returns the id of a vertex as text: its name or its number in the data set.
    pub fn vertex_id(&self, vertex: usize) -> String {
        match (&self.names, &self.ids) {
            (Some(names), _) => names[vertex].clone(),
            (None, Some(ids)) => ids.original()[vertex].to_string(),
            (None, None) => vertex.to_string(),
        }
    }

    /// Returns the vertices with the given ids, each as [`vertex_id`](Self::vertex_id) returns it.
    ///
    /// If sources and destinations of events share ids, `src:ID` is the source and `dst:ID` the destination.
    ///
    /// # Errors
    /// Usage if there is no such vertex, or an id stands for a source and a destination.
    pub fn vertices(&self, ids: &[String]) -> Result<Vec<u32>> {
        let mut by_id: HashMap<String, [u32; 2]> = HashMap::with_capacity(self.nodes);
        for vertex in 0..self.nodes as u32 {
            // Sources come before destinations.
            by_id.entry(self.vertex_id(vertex as usize)).or_insert([vertex; 2])[1] = vertex;
        }
        let find = |id: &String| {
            let sided = ["src:", "dst:"].iter().position(|side| id.starts_with(side));
            match (by_id.get(id), sided) {
                (Some(&[vertex, other]), _) if vertex == other => Ok(vertex),
                (Some(_), _) => Err(Error::usage(format!("{id} is a source and a destination"))
                    .remedy(format!("give src:{id} or dst:{id}"))),
                (None, Some(side)) if by_id.contains_key(&id[4..]) => Ok(by_id[&id[4..]][side]),
                (None, _) => Err(self.unknown(id)),
            }
        };
        ids.iter().map(find).collect()
    }

    /// Returns the error for an id that no vertex has.
    fn unknown(&self, id: &str) -> Error {
        let some: Vec<String> = (0..self.nodes.min(3)).map(|v| self.vertex_id(v)).collect();
        let (some, more) = (some.join(", "), if self.nodes > 3 { ", .." } else { "" });
        Error::usage(format!("{} has no vertex {id}", self.name))
            .remedy(format!("its {} vertices are {some}{more}", grouped(self.nodes as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Ids;

    fn made() -> Snapshots {
        let steps = vec![vec![(0, 3, 1.0)]];
        Snapshots::of_edges("made".into(), 4, steps, vec!["0".into()], false).unwrap()
    }

    fn found(s: &Snapshots, ids: &[&str]) -> Result<Vec<u32>> {
        s.vertices(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_vertex_is_found_by_its_name_or_its_id_or_its_number() {
        let said = |s: &Snapshots, id: &str| found(s, &[id]).unwrap_err().to_string();
        let mut s = made();
        assert_eq!(found(&s, &["3", "0"]).unwrap(), [3, 0]);
        assert_eq!(said(&s, "4"), "made has no vertex 4; its 4 vertices are 0, 1, 2, ..");
        s.ids = Some(Ids::new(vec![7, 30, 900, 1000]));
        assert_eq!(found(&s, &["900", "7"]).unwrap(), [2, 0]);
        assert_eq!(said(&s, "2"), "made has no vertex 2; its 4 vertices are 7, 30, 900, ..");
        s.names = Some(["PEST", "BEKES", "ZALA", "7"].map(str::to_owned).to_vec());
        assert_eq!(found(&s, &["ZALA", "7"]).unwrap(), [2, 3]);
        assert_eq!(s.vertex_id(1), "BEKES");
        assert!(said(&s, "pest").starts_with("made has no vertex pest; "));
    }

    #[test]
    fn an_id_of_a_source_and_a_destination_needs_its_side() {
        let s = Snapshots { ids: Some(Ids::new(vec![1, 2, 2, 3])), ..made() };
        assert_eq!(found(&s, &["src:2", "dst:2", "3", "dst:3"]).unwrap(), [1, 2, 3, 3]);
        let said = found(&s, &["2"]).unwrap_err().to_string();
        assert_eq!(said, "2 is a source and a destination; give src:2 or dst:2");
        assert!(found(&s, &["src:9"]).is_err());
    }
}
