//! Steps of long work: between two of them other requests get their turn.

/// At most this many objects are looked at in one step,
const OBJECTS: usize = 512;
/// and about so many bytes of them: a row of a Table, or a field that is selected by, is read
/// from the whole object.
const BYTES: usize = 1 << 20;

/// One step through many objects.
#[derive(Debug, Default)]
pub struct Step {
    objects: usize,
    bytes: usize,
}

impl Step {
    /// Whether the step is over before an object of so many bytes is looked at. One object is
    /// looked at in every step.
    pub fn is_over(&mut self, size: usize) -> bool {
        let is_over = self.objects == OBJECTS || (self.objects > 0 && self.bytes + size > BYTES);
        if !is_over {
            self.objects += 1;
            self.bytes += size;
        }
        is_over
    }

    /// Whether something was looked at.
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
    fn a_step_is_bounded_by_objects_and_bytes_and_goes_on() {
        assert_eq!(steps(100), OBJECTS);
        assert_eq!(steps(100 << 10), 10);
        assert_eq!(steps(2 * BYTES), 1);
    }
}
