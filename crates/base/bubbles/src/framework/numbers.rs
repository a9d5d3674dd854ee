//! Numbers of bubbles and threads that have ended, for later ones.

use super::{Framework, FrameworkError};
use crate::bubble::{Attributes, BubbleId, Entity};

impl Framework {
    /// Nobody asks about a bubble or thread any more that has ended, nor about what is in it. Later
    /// ones may have its number. Bubbles around it still count it as ended.
    ///
    /// # Errors
    /// There is none, or it has not ended.
    pub fn release(&mut self, entity: Entity) -> Result<(), FrameworkError> {
        self.attributes(entity)?;
        if !self.view.has_ended(entity) {
            return Err(FrameworkError::NotEnded(entity));
        }
        let is_released = match entity {
            Entity::Bubble(bubble) => &mut self.view.bubbles[bubble.0 as usize].is_released,
            Entity::Thread(thread) => &mut self.view.threads[thread.0 as usize].is_released,
        };
        if std::mem::replace(is_released, true) {
            return Ok(());
        }
        let Some(parent) = self.view.parent(entity) else {
            self.forget(entity);
            return Ok(());
        };
        let around = &mut self.view.bubbles[parent.0 as usize];
        around.released += 1;
        // Only when that is half of them, so that each child is looked at a few times at most.
        if around.released * 2 > around.children.len() {
            self.forget_released(parent);
        }
        Ok(())
    }

    /// Takes all children that were released out of a bubble.
    fn forget_released(&mut self, bubble: BubbleId) {
        let children = std::mem::take(&mut self.view.bubbles[bubble.0 as usize].children);
        let (released, others): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|child| match child {
                Entity::Bubble(inner) => self.view.bubbles[inner.0 as usize].is_released,
                Entity::Thread(thread) => self.view.threads[thread.0 as usize].is_released,
            });
        let ended: usize = released
            .iter()
            .map(|child| self.view.statistics(*child).ended)
            .sum();
        released.into_iter().for_each(|child| self.forget(child));
        let around = &mut self.view.bubbles[bubble.0 as usize];
        around.children = others;
        around.released = 0;
        around.forgotten += ended;
    }

    /// Frees the numbers of something that has ended, and of all in it.
    fn forget(&mut self, entity: Entity) {
        match entity {
            Entity::Bubble(bubble) => {
                let found = &mut self.view.bubbles[bubble.0 as usize];
                let children = std::mem::take(&mut found.children);
                found.parent = None;
                found.is_released = true;
                found.attributes = Attributes::default();
                self.free_bubbles.push(bubble);
                children.into_iter().for_each(|child| self.forget(child));
            }
            Entity::Thread(thread) => {
                let found = &mut self.view.threads[thread.0 as usize];
                found.parent = None;
                found.is_released = true;
                found.attributes = Attributes::default();
                self.free_threads.push(thread);
            }
        }
    }
}
