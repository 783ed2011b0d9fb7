//! The queue against a model of a controller that may break every rule.
//!
//! The model holds the rings and fetches, completes, loses, repeats and corrupts on request. Whatever it does, no command is
//! reported twice, none with the result of another, and none disappears: it is reported, or it is in flight and expires.

use std::collections::{HashSet, VecDeque};

use iosonde_nvme::command::Command;
use iosonde_nvme::completion::{Completion, Status};
use iosonde_nvme::queue::{Fault, Queue, Step};
use proptest::prelude::*;

const NUMBER: u16 = 1;

#[derive(Debug, Clone)]
enum Action {
    Submit,
    /// The driver writes its doorbell, and the controller fetches what is new.
    Ring,
    /// The controller completes the command at this place among those that it has fetched: any order is allowed.
    Complete(usize),
    /// The driver takes what is in the completion ring.
    Reap,
    Break(Breach),
}

/// Violation of the queue rules by a controller.
#[derive(Debug, Clone, Copy)]
enum Breach {
    Lose(usize),
    /// It completes a command, and keeps it.
    Repeat(usize),
    /// It completes an identifier that it made up.
    Invent(u16),
    OtherQueue(usize),
    Head(usize),
    /// It writes an entry with the old phase tag.
    Phase(usize),
}

/// The rings, and a controller without morals.
#[derive(Default)]
struct Model {
    entries: u16,
    submissions: Vec<Option<(Command, u32)>>,
    completions: Vec<[u32; 4]>,
    fetched: VecDeque<(u16, u32)>,
    head: u16,
    doorbell: u16,
    tail_of_completions: u16,
    freed_completions: u16,
    phase: bool,
}

impl Model {
    fn new(entries: u16) -> Model {
        Model {
            entries,
            submissions: vec![None; entries.into()],
            completions: vec![[0; 4]; entries.into()],
            phase: true,
            ..Model::default()
        }
    }

    fn fetch(&mut self) {
        while self.head != self.doorbell {
            let (command, user) = self.submissions[usize::from(self.head)].take().expect("a command");
            self.fetched.push_back((command.identifier(), user));
            self.head = (self.head + 1) % self.entries;
        }
    }

    fn has_room(&self) -> bool {
        (self.tail_of_completions + 1) % self.entries != self.freed_completions
    }

    /// Writes an entry, changed by `change`, if there is room.
    fn post(&mut self, identifier: u16, result: u32, change: impl Fn(&mut Completion)) {
        let mut entry = Completion {
            result,
            submission_head: self.head,
            submission_queue: NUMBER,
            identifier,
            phase: self.phase,
            status: Status(0),
        };
        change(&mut entry);
        self.completions[usize::from(self.tail_of_completions)] = entry.to_dwords();
        self.tail_of_completions = (self.tail_of_completions + 1) % self.entries;
        if self.tail_of_completions == 0 {
            self.phase = !self.phase;
        }
    }

    fn take(&mut self, place: usize) -> Option<(u16, u32)> {
        let count = self.fetched.len();
        (count > 0 && self.has_room()).then(|| self.fetched.remove(place % count).expect("in range"))
    }

    /// Carries out what a controller does; whether it broke a rule that a driver can see.
    fn act(&mut self, action: &Action) -> bool {
        match action {
            Action::Complete(place) => {
                if let Some((identifier, user)) = self.take(*place) {
                    self.post(identifier, user, |_| {});
                }
                false
            }
            Action::Break(breach) => self.breach(*breach),
            Action::Submit | Action::Ring | Action::Reap => false,
        }
    }

    fn breach(&mut self, breach: Breach) -> bool {
        let entries = self.entries;
        let place = match breach {
            Breach::Lose(place) => {
                self.take(place);
                return false;
            }
            Breach::Invent(identifier) => return self.repeat(identifier),
            Breach::Repeat(place) | Breach::OtherQueue(place) | Breach::Head(place) | Breach::Phase(place) => place,
        };
        let Some((identifier, user)) = self.take(place) else {
            return false;
        };
        match breach {
            Breach::OtherQueue(_) => self.post(identifier, user, |entry| entry.submission_queue = 7),
            Breach::Head(_) => self.post(identifier, user, |entry| entry.submission_head = entries + 3),
            Breach::Phase(_) => self.post(identifier, user, |entry| entry.phase = !entry.phase),
            _ => {
                self.post(identifier, user, |_| {});
                return self.repeat(identifier);
            }
        }
        true
    }

    /// Completes what is not in flight, with a result that no command has, if there is room.
    fn repeat(&mut self, identifier: u16) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.post(identifier, u32::MAX, |_| {});
        }
        has_room
    }
}

/// Driver and controller, and what must hold of them.
struct Trial {
    queue: Queue,
    model: Model,
    next: u32,
    in_flight: HashSet<u32>,
    reported: u32,
    fault: Option<Fault>,
    has_breach: bool,
}

impl Trial {
    fn new(queue: Queue) -> Trial {
        Trial {
            model: Model::new(queue.entries()),
            queue,
            next: 0,
            in_flight: HashSet::new(),
            reported: 0,
            fault: None,
            has_breach: false,
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Submit => self.submit(),
            Action::Ring => self.ring(),
            Action::Reap => self.reap(),
            // To complete a command early, or before it is submitted, is a breach that no driver can tell from a right
            // completion.
            Action::Break(Breach::Invent(identifier)) if self.is_in_flight(*identifier) => {}
            Action::Break(Breach::Invent(_)) => {
                self.has_breach |= self.model.act(action);
                self.reap();
            }
            other => self.has_breach |= self.model.act(other),
        }
    }

    fn is_in_flight(&self, identifier: u16) -> bool {
        self.queue.expired(u64::MAX).any(|each| each.identifier == identifier)
    }

    fn submit(&mut self) {
        let before = self.queue.in_flight();
        let Some(submitted) = self.queue.submit(self.next, u64::from(self.next) + 1) else {
            assert!(before > 0, "an empty queue takes a command");
            return;
        };
        let command = Command::flush(1).with_identifier(submitted.identifier);
        let entry = &mut self.model.submissions[usize::from(submitted.entry)];
        assert!(entry.is_none(), "an entry is reused only after it was fetched");
        *entry = Some((command, self.next));
        self.in_flight.insert(self.next);
        self.next += 1;
    }

    fn ring(&mut self) {
        if let Some(tail) = self.queue.submission_doorbell() {
            assert_ne!(tail, self.model.doorbell, "a doorbell is written only with news");
            self.model.doorbell = tail;
        }
        assert_eq!(self.queue.submission_doorbell(), None);
        self.free_completions();
        self.model.fetch();
    }

    fn free_completions(&mut self) {
        if let Some(head) = self.queue.completion_doorbell() {
            assert_ne!(head, self.model.freed_completions, "written only with news");
            self.model.freed_completions = head;
        }
    }

    fn reap(&mut self) {
        while self.fault.is_none() {
            let (entry, _) = self.queue.next_completion();
            let completion = Completion::from_dwords(self.model.completions[usize::from(entry)]);
            match self.queue.complete(&completion) {
                Step::Empty => break,
                Step::Fault(fault) => self.fault = Some(fault),
                Step::Done { user, result, .. } => {
                    assert_eq!(user, result, "a result belongs to its command");
                    assert!(self.in_flight.remove(&user), "a command is reported once");
                    self.reported += 1;
                }
            }
        }
        self.free_completions();
    }

    fn check(&self) {
        assert_eq!(self.queue.in_flight(), self.in_flight.len());
        assert!(self.queue.in_flight() < usize::from(self.queue.entries()));
        assert_eq!(self.queue.expired(u64::MAX).count(), self.in_flight.len());
    }
}

fn rightful() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Submit),
        2 => Just(Action::Ring),
        4 => any::<usize>().prop_map(Action::Complete),
        2 => Just(Action::Reap),
    ]
}

fn lawless() -> impl Strategy<Value = Action> {
    let breach = prop_oneof![
        any::<usize>().prop_map(Breach::Lose),
        any::<usize>().prop_map(Breach::Repeat),
        any::<u16>().prop_map(Breach::Invent),
        any::<usize>().prop_map(Breach::OtherQueue),
        any::<usize>().prop_map(Breach::Head),
        any::<usize>().prop_map(Breach::Phase),
    ];
    prop_oneof![20 => rightful(), 1 => breach.prop_map(Action::Break)]
}

proptest! {
    #[test]
    fn every_command_of_a_right_controller_is_reported_once_in_any_order(
        entries in 2u16..80, is_deferring: bool, actions in prop::collection::vec(rightful(), 0..400)
    ) {
        let queue = Queue::new(NUMBER, entries);
        let mut trial = Trial::new(if is_deferring { queue.deferring() } else { queue });
        for action in &actions {
            trial.act(action);
            trial.check();
            if matches!(action, Action::Ring) {
                // Also where the head is deferred, there is room for each command in flight.
                let used = (trial.model.tail_of_completions + entries - trial.model.freed_completions) % entries;
                prop_assert!(usize::from(used) + trial.model.fetched.len() < usize::from(entries));
            }
        }
        // Commands in flight are completed, and nothing remains.
        while trial.queue.in_flight() > 0 {
            trial.ring();
            trial.act(&Action::Complete(0));
            trial.reap();
        }
        prop_assert_eq!(trial.fault, None);
        prop_assert_eq!(trial.reported, trial.next);
    }

    #[test]
    fn whatever_a_controller_does_no_command_is_reported_twice_or_disappears(
        entries in 2u16..20, actions in prop::collection::vec(lawless(), 0..400)
    ) {
        let mut trial = Trial::new(Queue::new(NUMBER, entries));
        for action in &actions {
            trial.act(action);
            trial.check();
        }
        if !trial.has_breach {
            prop_assert_eq!(trial.fault, None, "a lost command is no fault of the queue: it expires");
        }
        let lost = trial.queue.in_flight();
        prop_assert_eq!(trial.queue.abandon().len(), lost);
        prop_assert_eq!(trial.reported + lost as u32, trial.next);
    }

    #[test]
    fn a_second_completion_is_recognised_when_its_slot_is_in_use_again(between in 1u32..60) {
        let mut trial = Trial::new(Queue::new(NUMBER, 2));
        trial.submit();
        let first = trial.model.submissions[0].expect("submitted").0.identifier();
        for _ in 0..between {
            trial.ring();
            trial.act(&Action::Complete(0));
            trial.reap();
            trial.submit();
        }
        trial.ring();
        trial.model.post(first, u32::MAX, |_| {});
        trial.reap();
        prop_assert_eq!(trial.fault, Some(Fault::UnknownIdentifier(first)));
    }
}

#[test]
fn a_lost_command_expires_is_aborted_and_expires_again() {
    let mut queue = Queue::new(NUMBER, 4);
    let lost = queue.submit(7, 100).expect("room");
    queue.submit(8, 300).expect("room");
    assert_eq!(queue.expired(99).count(), 0);
    let expired: Vec<_> = queue.expired(100).collect();
    assert_eq!(expired.len(), 1);
    assert!(expired[0].identifier == lost.identifier && !expired[0].is_aborting);
    queue.abort(lost.identifier, 200);
    assert_eq!(queue.expired(150).count(), 0);
    let expired: Vec<_> = queue.expired(200).collect();
    assert!(expired[0].is_aborting);
    // An aborted command keeps its buffer until it is completed.
    assert_eq!(queue.in_flight(), 2);
    assert_eq!(queue.abandon(), [7, 8]);
    assert_eq!(queue.in_flight(), 0);
    let mut queue = Queue::new(NUMBER, u16::MAX);
    let submitted = (0..u32::MAX).take_while(|user| queue.submit(*user, 0).is_some());
    assert_eq!(submitted.count(), usize::from(iosonde_nvme::queue::MOST_IN_FLIGHT));
}
