//! Input rules of TPC-C 5.11: non-uniform random numbers, last names, the deck of the mix, inputs of each transaction.

use iosonde_harness::load::Rng;
use iosonde_protocol::{HomeWarehouse, Operation, ThinkTime, TransactionMix};

/// Districts of a warehouse.
pub(crate) const DISTRICTS: u32 = 10;
/// Customers of a district, and its orders after loading.
pub(crate) const CUSTOMERS: u32 = 3000;
/// Items, and stock entries of a warehouse.
pub(crate) const ITEMS: u32 = 100_000;
/// First order of a district that is not delivered after loading.
pub(crate) const FIRST_UNDELIVERED: u32 = 2101;
/// Most lines of an order.
pub(crate) const LINES_MAX: usize = 15;
/// An item that does not exist (clause 2.4.1.5).
const UNUSED_ITEM: u32 = ITEMS + 1;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// The run-time constants of non-uniform random numbers (clause 2.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Constants {
    pub c_last_load: u32,
    pub c_last: u32,
    pub c_id: u32,
    pub ol_i_id: u32,
}

impl Constants {
    /// From the seed of the population and that of the run. The distance between the two constants of last names is as
    /// clause 2.1.6.1 demands: 65 to 119, but neither 96 nor 112.
    pub(crate) fn new(population_seed: u64, run_seed: u64) -> Constants {
        let c_last_load = Rng::new(population_seed, &[0x7a57]).below(256) as u32;
        let mut rng = Rng::new(run_seed, &[0xc057]);
        let c_last = loop {
            let candidate = rng.below(256) as u32;
            let distance = candidate.abs_diff(c_last_load);
            if (65..=119).contains(&distance) && distance != 96 && distance != 112 {
                break candidate;
            }
        };
        Constants {
            c_last_load,
            c_last,
            c_id: rng.below(1024) as u32,
            ol_i_id: rng.below(8192) as u32,
        }
    }
}

/// A number from `low` to `high`.
#[inline]
pub(crate) fn uniform(rng: &mut Rng, low: u32, high: u32) -> u32 {
    low + rng.below(u64::from(high - low) + 1) as u32
}

/// `NURand(a, low, high)` with constant `c` (clause 2.1.6).
#[inline]
pub(crate) fn non_uniform(rng: &mut Rng, a: u32, c: u32, low: u32, high: u32) -> u32 {
    ((uniform(rng, 0, a) | uniform(rng, low, high)) + c) % (high - low + 1) + low
}

/// A last name in place: up to 15 letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastName {
    letters: [u8; 16],
    length: u8,
}

impl LastName {
    /// The name of a number from 0 to 999 (clause 4.3.2.3).
    pub(crate) fn new(number: u32) -> LastName {
        let (mut letters, mut length) = ([0; 16], 0);
        for digit in [number / 100, number / 10 % 10, number % 10] {
            for letter in SYLLABLES[digit as usize].bytes() {
                letters[length] = letter;
                length += 1;
            }
        }
        LastName {
            letters,
            length: length as u8,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.letters[..usize::from(self.length)]
    }
}

/// Selection of a customer: 60 % by last name, 40 % by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Customer {
    Number(u32),
    LastName(LastName),
}

/// One line of a new order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub item: u32,
    pub supply_warehouse: u32,
    pub quantity: u32,
}

/// Input of a new-order (clause 2.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewOrder {
    pub warehouse: u32,
    pub district: u32,
    pub customer: u32,
    pub lines: [Line; LINES_MAX],
    pub count: usize,
    pub is_local: bool,
    /// True if the last item does not exist, so that the transaction is rolled back.
    pub rolls_back: bool,
}

/// Input of a payment (clause 2.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payment {
    pub warehouse: u32,
    pub district: u32,
    pub customer_warehouse: u32,
    pub customer_district: u32,
    pub customer: Customer,
    pub amount_cents: i64,
}

/// Input of an order-status (clause 2.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrderStatus {
    pub warehouse: u32,
    pub district: u32,
    pub customer: Customer,
}

/// Input of a delivery (clause 2.7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub warehouse: u32,
    pub carrier: u32,
}

/// Input of a stock-level (clause 2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StockLevel {
    pub warehouse: u32,
    pub district: u32,
    pub threshold: u32,
}

/// A transaction with its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl Input {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Input::NewOrder(_) => Operation::NewOrder,
            Input::Payment(_) => Operation::Payment,
            Input::OrderStatus(_) => Operation::OrderStatus,
            Input::Delivery(_) => Operation::Delivery,
            Input::StockLevel(_) => Operation::StockLevel,
        }
    }
}

/// The order of transaction types.
struct Deck {
    cards: [Operation; 23],
    next: usize,
}

impl Deck {
    fn new() -> Deck {
        let mut cards = [Operation::NewOrder; 23];
        cards[10..20].fill(Operation::Payment);
        cards[20..].copy_from_slice(&[Operation::OrderStatus, Operation::Delivery, Operation::StockLevel]);
        Deck { cards, next: 23 }
    }

    fn draw(&mut self, rng: &mut Rng) -> Operation {
        if self.next == self.cards.len() {
            for place in (1..self.cards.len()).rev() {
                self.cards.swap(place, rng.below(place as u64 + 1) as usize);
            }
            self.next = 0;
        }
        self.next += 1;
        self.cards[self.next - 1]
    }
}

/// Input of one terminal.
pub(crate) struct Keyboard {
    rng: Rng,
    constants: Constants,
    warehouses: u32,
    /// The terminal's own warehouse and district; the latter is that of its stock-levels (clause 2.8.1.1).
    own: Option<(u32, u32)>,
    deck: Option<Deck>,
}

impl Keyboard {
    pub(crate) fn new(
        seed: u64,
        terminal: u32,
        warehouses: u32,
        constants: Constants,
        home: HomeWarehouse,
        mix: TransactionMix,
    ) -> Keyboard {
        let own = (terminal % warehouses + 1, terminal / warehouses % DISTRICTS + 1);
        Keyboard {
            rng: Rng::new(seed, &[0x7e12, u64::from(terminal)]),
            constants,
            warehouses,
            own: (home == HomeWarehouse::Fixed).then_some(own),
            deck: (mix == TransactionMix::Deck).then(Deck::new),
        }
    }

    /// The next transaction.
    pub(crate) fn enter(&mut self) -> Input {
        match self.choose() {
            Operation::NewOrder => Input::NewOrder(self.new_order()),
            Operation::Payment => Input::Payment(self.payment()),
            Operation::OrderStatus => Input::OrderStatus(OrderStatus {
                warehouse: self.warehouse(),
                district: self.district(),
                customer: self.customer(),
            }),
            Operation::Delivery => Input::Delivery(Delivery {
                warehouse: self.warehouse(),
                carrier: uniform(&mut self.rng, 1, 10),
            }),
            _ => Input::StockLevel(StockLevel {
                warehouse: self.warehouse(),
                district: match self.own {
                    Some((_, district)) => district,
                    None => self.district(),
                },
                threshold: uniform(&mut self.rng, 10, 20),
            }),
        }
    }

    fn choose(&mut self) -> Operation {
        match &mut self.deck {
            Some(deck) => deck.draw(&mut self.rng),
            None => match self.rng.below(100) {
                0..45 => Operation::NewOrder,
                45..88 => Operation::Payment,
                88..92 => Operation::OrderStatus,
                92..96 => Operation::Delivery,
                _ => Operation::StockLevel,
            },
        }
    }

    fn warehouse(&mut self) -> u32 {
        match self.own {
            Some((warehouse, _)) => warehouse,
            None => uniform(&mut self.rng, 1, self.warehouses),
        }
    }

    fn district(&mut self) -> u32 {
        uniform(&mut self.rng, 1, DISTRICTS)
    }

    /// Another warehouse, where there is one.
    fn other_warehouse(&mut self, warehouse: u32) -> u32 {
        match self.warehouses {
            1 => warehouse,
            warehouses => {
                let other = uniform(&mut self.rng, 1, warehouses - 1);
                other + u32::from(other >= warehouse)
            }
        }
    }

    fn customer_number(&mut self) -> u32 {
        non_uniform(&mut self.rng, 1023, self.constants.c_id, 1, CUSTOMERS)
    }

    fn customer(&mut self) -> Customer {
        match self.rng.below(100) {
            0..60 => {
                let number = non_uniform(&mut self.rng, 255, self.constants.c_last, 0, 999);
                Customer::LastName(LastName::new(number))
            }
            _ => Customer::Number(self.customer_number()),
        }
    }

    fn new_order(&mut self) -> NewOrder {
        let warehouse = self.warehouse();
        let mut order = NewOrder {
            warehouse,
            district: self.district(),
            customer: self.customer_number(),
            lines: Default::default(),
            count: uniform(&mut self.rng, 5, LINES_MAX as u32) as usize,
            is_local: true,
            rolls_back: self.rng.below(100) == 0,
        };
        for line in &mut order.lines[..order.count] {
            let is_remote = self.rng.below(100) == 0 && self.warehouses > 1;
            *line = Line {
                item: non_uniform(&mut self.rng, 8191, self.constants.ol_i_id, 1, ITEMS),
                supply_warehouse: if is_remote {
                    self.other_warehouse(warehouse)
                } else {
                    warehouse
                },
                quantity: uniform(&mut self.rng, 1, 10),
            };
            order.is_local &= !is_remote;
        }
        if order.rolls_back {
            order.lines[order.count - 1].item = UNUSED_ITEM;
        }
        order
    }

    fn payment(&mut self) -> Payment {
        let (warehouse, district) = (self.warehouse(), self.district());
        let is_remote = self.rng.below(100) >= 85 && self.warehouses > 1;
        Payment {
            warehouse,
            district,
            customer_warehouse: if is_remote {
                self.other_warehouse(warehouse)
            } else {
                warehouse
            },
            customer_district: if is_remote { self.district() } else { district },
            customer: self.customer(),
            amount_cents: uniform(&mut self.rng, 100, 500_000).into(),
        }
    }

    /// Keying time before a transaction and think time after it, in nanoseconds (clauses 5.2.5.2 and 5.2.5.4).
    pub(crate) fn pauses(&mut self, operation: Operation, think: ThinkTime) -> (u64, u64) {
        if think == ThinkTime::None {
            return (0, 0);
        }
        let (keying_s, mean_s) = match operation {
            Operation::NewOrder => (18, 12.0),
            Operation::Payment => (3, 12.0),
            Operation::OrderStatus => (2, 10.0),
            _ => (2, 5.0),
        };
        let think_s = (mean_s * self.rng.exponential()).min(10.0 * mean_s);
        (keying_s * 1_000_000_000, (think_s * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSTANTS: Constants = Constants {
        c_last_load: 10,
        c_last: 90,
        c_id: 259,
        ol_i_id: 7911,
    };

    const OPERATIONS: [Operation; 5] = [
        Operation::NewOrder,
        Operation::Payment,
        Operation::OrderStatus,
        Operation::Delivery,
        Operation::StockLevel,
    ];

    fn keyboard(warehouses: u32, mix: TransactionMix) -> Keyboard {
        Keyboard::new(1, 0, warehouses, CONSTANTS, HomeWarehouse::Uniform, mix)
    }

    /// Chi-square of counts against probabilities, and its limit at six standard deviations of the normal approximation.
    #[track_caller]
    fn assert_frequencies(counts: &[u64], probabilities: &[f64]) {
        let total: u64 = counts.iter().sum();
        let terms = counts.iter().zip(probabilities).map(|(count, probability)| {
            let expected = total as f64 * probability;
            (*count as f64 - expected).powi(2) / expected
        });
        let (chi, freedom) = (terms.sum::<f64>(), (counts.len() - 1) as f64);
        assert!(chi < freedom + 6.0 * (2.0 * freedom).sqrt(), "{chi} {freedom}");
    }

    /// Number of those that fulfil a condition against its probability.
    #[track_caller]
    fn assert_share<T>(all: &[T], share: f64, is_one: impl Fn(&T) -> bool) {
        let count = all.iter().filter(|one| is_one(one)).count() as u64;
        assert_frequencies(&[count, all.len() as u64 - count], &[share, 1.0 - share]);
    }

    fn inputs(warehouses: u32, mix: TransactionMix, count: usize) -> Vec<Input> {
        let mut keyboard = keyboard(warehouses, mix);
        (0..count).map(|_| keyboard.enter()).collect()
    }

    #[test]
    fn names_and_constants_are_those_of_the_specification() {
        assert_eq!(LastName::new(371).as_bytes(), b"PRICALLYOUGHT");
        assert_eq!(LastName::new(40).as_bytes(), b"BARPRESBAR");
        let longest = (0..1000).map(|number| LastName::new(number).as_bytes().len()).max();
        assert_eq!(longest, Some(15));
        for seed in 0..500 {
            let constants = Constants::new(seed, seed + 1);
            let distance = constants.c_last.abs_diff(constants.c_last_load);
            assert!((65..=119).contains(&distance) && distance != 96 && distance != 112);
            assert!(constants.c_id < 1024 && constants.ol_i_id < 8192);
        }
        assert_eq!(Constants::new(3, 4), Constants::new(3, 4));
    }

    /// The distribution by enumeration: every pair of the two uniform numbers once.
    #[test]
    fn non_uniform_numbers_follow_their_law() {
        let (a, c, high) = (255, 123, 999);
        let mut weights = vec![0_u64; 1000];
        for left in 0..=a {
            for right in 0..=high {
                weights[(((left | right) + c) % 1000) as usize] += 1;
            }
        }
        let total: u64 = weights.iter().sum();
        let mut rng = Rng::new(5, &[]);
        let mut counts = vec![0_u64; 1000];
        for _ in 0..400_000 {
            counts[non_uniform(&mut rng, a, c, 0, high) as usize] += 1;
        }
        let pairs = counts.into_iter().zip(weights);
        let (possible, impossible): (Vec<_>, Vec<_>) = pairs.partition(|(_, weight)| *weight > 0);
        assert!(impossible.iter().all(|(count, _)| *count == 0));
        let (counts, weights): (Vec<u64>, Vec<u64>) = possible.into_iter().unzip();
        let shares: Vec<f64> = weights.iter().map(|weight| *weight as f64 / total as f64).collect();
        assert_frequencies(&counts, &shares);
    }

    #[test]
    fn every_deck_has_23_cards_the_weighted_mix_its_shares_and_think_times_are_exponential() {
        let all = inputs(1, TransactionMix::Deck, 23 * 200);
        for deck in all.chunks(23) {
            let count = |operation| deck.iter().filter(|input| input.operation() == operation).count();
            assert_eq!(OPERATIONS.map(count), [10, 10, 1, 1, 1]);
        }
        let firsts = all.iter().step_by(23).map(Input::operation);
        let firsts = firsts.filter(|operation| *operation == Operation::NewOrder).count();
        assert!((50..130).contains(&firsts), "{firsts}");
        let all = inputs(1, TransactionMix::Weighted, 50_000);
        let counts = OPERATIONS.map(|wanted| all.iter().filter(|input| input.operation() == wanted).count() as u64);
        assert_frequencies(&counts, &[0.45, 0.43, 0.04, 0.04, 0.04]);
        let mut keyboard = keyboard(1, TransactionMix::Deck);
        let mut sum = 0.0;
        for _ in 0..20_000 {
            let (keying_ns, think_ns) = keyboard.pauses(Operation::Payment, ThinkTime::Standard);
            assert!(keying_ns == 3_000_000_000 && think_ns <= 120_000_000_000);
            sum += think_ns as f64;
        }
        let mean = sum / 20_000.0;
        assert!((mean / 12e9 - 1.0).abs() < 0.03, "mean think time {mean} ns");
        assert_eq!(keyboard.pauses(Operation::NewOrder, ThinkTime::None), (0, 0));
    }

    #[test]
    fn new_orders_follow_the_input_rules() {
        let mut orders = inputs(5, TransactionMix::Weighted, 60_000);
        orders.retain(|input| matches!(input, Input::NewOrder(_)));
        let mut sizes = [0_u64; 11];
        let mut lines = Vec::new();
        for input in &orders {
            let Input::NewOrder(order) = input else { unreachable!() };
            sizes[order.count - 5] += 1;
            let used = &order.lines[..order.count];
            assert!(used.iter().all(|line| (1..=10).contains(&line.quantity)));
            assert!(used.iter().all(|line| (1..=5).contains(&line.supply_warehouse)));
            let (last, others) = used.split_last().unwrap();
            assert_eq!(last.item == UNUSED_ITEM, order.rolls_back);
            assert!(others.iter().all(|line| (1..=ITEMS).contains(&line.item)));
            let is_remote = used.iter().map(|line| line.supply_warehouse != order.warehouse);
            assert_eq!(order.is_local, is_remote.clone().all(|is_remote| !is_remote));
            lines.extend(is_remote);
        }
        assert_frequencies(&sizes, &[1.0 / 11.0; 11]);
        assert_share(&lines, 0.01, |is_remote| *is_remote);
        let rolls_back = |input: &Input| matches!(input, Input::NewOrder(order) if order.rolls_back);
        assert_share(&orders, 0.01, rolls_back);
    }

    #[test]
    fn payments_follow_the_input_rules() {
        let all = inputs(5, TransactionMix::Weighted, 60_000).into_iter();
        let payments = all.filter_map(|input| match input {
            Input::Payment(payment) => Some(payment),
            _ => None,
        });
        let payments: Vec<Payment> = payments.collect();
        let is_local = |payment: &Payment| payment.customer_warehouse == payment.warehouse;
        assert_share(&payments, 0.85, is_local);
        assert_share(&payments, 0.6, |payment| {
            matches!(payment.customer, Customer::LastName(_))
        });
        for payment in &payments {
            assert!((100..=500_000).contains(&payment.amount_cents));
            assert!(!is_local(payment) || payment.customer_district == payment.district);
        }
    }

    #[test]
    fn a_terminal_keeps_its_home_and_one_warehouse_has_nothing_remote() {
        let mut keyboard = Keyboard::new(1, 7, 3, CONSTANTS, HomeWarehouse::Fixed, TransactionMix::Deck);
        for _ in 0..500 {
            let (warehouse, district) = match keyboard.enter() {
                Input::NewOrder(order) => (order.warehouse, 3),
                Input::StockLevel(level) => (level.warehouse, level.district),
                Input::Delivery(delivery) => (delivery.warehouse, 3),
                Input::Payment(payment) => (payment.warehouse, 3),
                Input::OrderStatus(status) => (status.warehouse, 3),
            };
            assert_eq!((warehouse, district), (2, 3));
        }
        for input in inputs(1, TransactionMix::Deck, 5000) {
            match input {
                Input::NewOrder(order) => assert!(order.is_local),
                Input::Payment(payment) => assert_eq!(payment.customer_warehouse, 1),
                _ => {}
            }
        }
    }
}
