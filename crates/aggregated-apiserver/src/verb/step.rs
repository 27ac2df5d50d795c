//! Steps of long loops over objects. Other tasks run between two steps.

/// The largest number of objects in a step.
const OBJECTS: usize = 512;
/// The approximate largest size of the objects in a step, in bytes. A row of a Table, or a field of a field selector,
/// is read from the whole object.
const BYTES: usize = 1 << 20;

/// One step of a loop over many objects.
#[derive(Debug, Default)]
pub struct Step {
    objects: usize,
    bytes: usize,
}

impl Step {
    /// Whether an object of this size, in bytes, does not fit into the step. The first object always fits.
    pub fn is_over(&mut self, size: usize) -> bool {
        let is_over = self.objects == OBJECTS || (self.objects > 0 && self.bytes + size > BYTES);
        if !is_over {
            self.objects += 1;
            self.bytes += size;
        }
        is_over
    }

    /// Whether the step includes any object.
    pub fn has_begun(&self) -> bool {
        self.objects > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(size: usize) -> usize {
        let mut step = Step::default();
        (0..).take_while(|_| !step.is_over(size)).count()
    }

    #[test]
    fn a_list_step_is_limited_by_objects_and_bytes_and_never_empty() {
        assert_eq!(steps(100), OBJECTS);
        assert_eq!(steps(100 << 10), 10);
        assert_eq!(steps(2 * BYTES), 1);
    }
}
