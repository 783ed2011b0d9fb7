//! A controller from its reset to its shutdown: admin commands, namespaces, I/O queues.
//!
//! The steps are those of the NVM Express Base Specification 2.0, section 3.5.1 ("Memory-based Controller
//! Initialization (PCIe)"), 3.6.1 (shutdown) and 3.7.2 ("Controller Level Reset").

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::NvmeError;
use crate::bus::Bus;
use crate::command::{Command, Structure};
use crate::completion::Completion;
use crate::doorbell::ShadowPages;
use crate::identify::{ControllerIdentity, Namespace, STRUCTURE_BYTES, namespace_list};
use crate::memory::{Memory, PAGE_BYTES};
use crate::queue::{Queue, Step};
use crate::registers::{
    ADMIN_COMPLETION_QUEUE, ADMIN_QUEUE_ATTRIBUTES, ADMIN_SUBMISSION_QUEUE, CAPABILITIES, CONFIGURATION, Capabilities,
    ControllerStatus, ENABLED, SHUTDOWN, STATUS,
};
use crate::ring::Rings;

/// Entries of the admin queues.
const ADMIN_ENTRIES: u16 = 32;
/// Timeout of an admin command.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// An enabled controller. It is shut down when this is dropped.
pub struct Controller<B: Bus> {
    bus: Arc<B>,
    capabilities: Capabilities,
    admin: Rings,
    page: Memory,
    page_address: u64,
    identity: ControllerIdentity,
    shadows: Option<ShadowPages>,
    is_usable: bool,
}

impl<B: Bus> Controller<B> {
    /// Resets the controller, enables it with new admin queues, and identifies it.
    ///
    /// # Errors
    /// When it does not react, or is one that the driver does not support.
    pub fn start(bus: Arc<B>) -> Result<Controller<B>, NvmeError> {
        let registers = bus.registers();
        check_present(registers.read32(STATUS))?;
        let capabilities = Capabilities(registers.read64(CAPABILITIES));
        check_supported(capabilities)?;
        disable(bus.as_ref(), capabilities)?;
        let page = Memory::near(PAGE_BYTES, bus.numa_node()).map_err(NvmeError::system("allocate memory"))?;
        let page_address = bus.map(&page).map_err(NvmeError::system("map memory for the device"))?;
        let admin = Rings::new(bus.as_ref(), capabilities, Queue::new(0, ADMIN_ENTRIES), None)?;
        let mut controller = Controller {
            bus,
            capabilities,
            admin,
            page,
            page_address,
            identity: ControllerIdentity::parse(&[0; STRUCTURE_BYTES]),
            shadows: None,
            is_usable: true,
        };
        controller.enable()?;
        let page = controller.identify(Structure::Controller)?;
        controller.identity = ControllerIdentity::parse(&page);
        if controller.identity.has_shadow_doorbells {
            controller.shadows = controller.set_up_shadows()?;
        }
        Ok(controller)
    }

    /// Shadow doorbells for the I/O queues; none if the controller refuses them.
    fn set_up_shadows(&mut self) -> Result<Option<ShadowPages>, NvmeError> {
        let memory =
            Memory::near(ShadowPages::BYTES, self.bus.numa_node()).map_err(NvmeError::system("allocate memory"))?;
        let address = self
            .bus
            .map(&memory)
            .map_err(NvmeError::system("map memory for the device"))?;
        let command = Command::shadow_doorbells(address, address + PAGE_BYTES as u64);
        match self.command("Doorbell Buffer Config", command) {
            Ok(_) => Ok(Some(ShadowPages::new(memory))),
            Err(NvmeError::Command { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn enable(&mut self) -> Result<(), NvmeError> {
        let registers = self.bus.registers();
        let less_one = u32::from(ADMIN_ENTRIES) - 1;
        registers.write32(ADMIN_QUEUE_ATTRIBUTES, less_one | less_one << 16);
        registers.write64(ADMIN_SUBMISSION_QUEUE, self.admin.submission_address());
        registers.write64(ADMIN_COMPLETION_QUEUE, self.admin.completion_address());
        registers.write32(CONFIGURATION, ENABLED);
        let timeout = Duration::from_millis(self.capabilities.ready_timeout_ms());
        wait_for(self.bus.as_ref(), timeout, "become ready", |status| {
            if status.is_fatal() {
                return Err(NvmeError::Fatal);
            }
            Ok(status.is_ready())
        })
    }

    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Identify Controller.
    pub fn identity(&self) -> &ControllerIdentity {
        &self.identity
    }

    /// Returns true if its I/O queues have shadow doorbells.
    pub fn has_shadow_doorbells(&self) -> bool {
        self.shadows.is_some()
    }

    /// The bus that it is on.
    pub fn bus(&self) -> &Arc<B> {
        &self.bus
    }

    /// Bytes that one command may transfer.
    pub fn largest_transfer_bytes(&self) -> u64 {
        self.identity
            .largest_transfer_bytes(self.capabilities.smallest_page_bytes())
    }

    /// Carries out Identify and returns the data structure.
    ///
    /// # Errors
    /// When the controller refuses, or does not answer.
    pub fn identify(&mut self, structure: Structure) -> Result<[u8; STRUCTURE_BYTES], NvmeError> {
        self.command("Identify", Command::identify(structure, self.page_address))?;
        let mut bytes = [0; STRUCTURE_BYTES];
        self.page.load(0, &mut bytes);
        Ok(bytes)
    }

    /// Numbers of its active namespaces.
    ///
    /// # Errors
    /// As of [`Controller::identify`].
    pub fn namespaces(&mut self) -> Result<Vec<u32>, NvmeError> {
        let mut found: Vec<u32> = Vec::new();
        loop {
            let above = found.last().copied().unwrap_or(0);
            let page = namespace_list(&self.identify(Structure::ActiveNamespaces(above))?);
            let is_last = page.len() < STRUCTURE_BYTES / 4;
            // A list that does not ascend would never end.
            found.extend(page.into_iter().filter(|number| *number > above));
            if is_last || found.last().copied().unwrap_or(0) == above {
                return Ok(found);
            }
        }
    }

    /// A namespace.
    ///
    /// # Errors
    /// When it is inactive or has a format that the driver does not support.
    pub fn namespace(&mut self, number: u32) -> Result<Namespace, NvmeError> {
        let page = self.identify(Structure::Namespace(number))?;
        Namespace::parse(number, &page)
    }

    /// Asks for so many I/O queue pairs.
    ///
    /// # Errors
    /// When the controller grants fewer.
    pub fn request_queues(&mut self, pairs: u16) -> Result<(), NvmeError> {
        let granted = self.command("Set Features", Command::set_number_of_queues(pairs))?;
        let count = (granted.result & 0xffff).min(granted.result >> 16) + 1;
        if count < u32::from(pairs) {
            return Err(NvmeError::Unsupported(format!(
                "the controller has {count} I/O queue pairs, and {pairs} are needed"
            )));
        }
        Ok(())
    }

    /// Creates I/O queue pair `number` (from 1) with rings of `entries` entries, polled unless it has an interrupt vector.
    ///
    /// # Errors
    /// When the rings are too large for the controller, or it refuses them.
    pub(crate) fn create_rings(&mut self, number: u16, entries: u16, vector: Option<u16>) -> Result<Rings, NvmeError> {
        let most = self.capabilities.queue_entries();
        if u32::from(entries) > most {
            return Err(NvmeError::Unsupported(format!(
                "the controller has queues of {most} entries, and {entries} are needed"
            )));
        }
        let queue = Queue::new(number, entries);
        // With an interrupt, the controller has to know at once which completions were seen.
        let queue = if vector.is_none() { queue.deferring() } else { queue };
        let rings = Rings::new(self.bus.as_ref(), self.capabilities, queue, self.shadows.as_ref())?;
        let completions = Command::create_completion_queue(number, entries, rings.completion_address(), vector);
        self.command("Create I/O Completion Queue", completions)?;
        let submissions = Command::create_submission_queue(number, entries, rings.submission_address());
        if let Err(error) = self.command("Create I/O Submission Queue", submissions) {
            let _ = self.command("Delete I/O Completion Queue", Command::delete_completion_queue(number));
            return Err(error);
        }
        Ok(rings)
    }

    /// Deletes an I/O queue pair: first the submission queue, which ends its commands.
    ///
    /// # Errors
    /// When the controller refuses.
    pub fn delete_queues(&mut self, number: u16) -> Result<(), NvmeError> {
        self.command("Delete I/O Submission Queue", Command::delete_submission_queue(number))?;
        self.command("Delete I/O Completion Queue", Command::delete_completion_queue(number))
            .map(|_| ())
    }

    /// Requests the abort of a command. The completion of that command has the result.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub fn abort(&mut self, queue: u16, identifier: u16) -> Result<(), NvmeError> {
        self.command("Abort", Command::abort(queue, identifier)).map(|_| ())
    }

    /// Disables the controller, which ends all its accesses to memory. It is not used afterwards.
    ///
    /// # Errors
    /// When it does not become disabled in time.
    pub fn reset(&mut self) -> Result<(), NvmeError> {
        self.is_usable = false;
        disable(self.bus.as_ref(), self.capabilities)
    }

    /// Controller Status: an error if the controller was removed or reports a fatal error.
    ///
    /// # Errors
    /// [`NvmeError::Removed`], [`NvmeError::Fatal`].
    pub fn check(&self) -> Result<(), NvmeError> {
        check_alive(self.bus.registers().read32(STATUS))
    }

    /// Carries out an admin command.
    fn command(&mut self, name: &'static str, command: Command) -> Result<Completion, NvmeError> {
        if !self.is_usable {
            return Err(NvmeError::Unsupported("the controller was reset".into()));
        }
        let done = self.carry_out(name, command);
        // After anything but an error status a late completion may come, which the next command must not take.
        self.is_usable = matches!(done, Ok(_) | Err(NvmeError::Command { .. }));
        done
    }

    fn carry_out(&mut self, name: &'static str, command: Command) -> Result<Completion, NvmeError> {
        let entry = self
            .admin
            .submit(command, 0, u64::MAX)
            .ok_or(NvmeError::Timeout("take a command"))?;
        self.admin.ring();
        let deadline = Instant::now() + ADMIN_TIMEOUT;
        loop {
            match self.admin.step()? {
                Step::Done { status, result, .. } => {
                    self.admin.ring();
                    if !status.is_success() {
                        return Err(NvmeError::Command { command: name, status });
                    }
                    return Ok(Completion {
                        result,
                        submission_head: 0,
                        submission_queue: 0,
                        identifier: entry.identifier,
                        phase: true,
                        status,
                    });
                }
                _ => {
                    self.check()?;
                    if Instant::now() >= deadline {
                        return Err(NvmeError::Timeout("answer an admin command"));
                    }
                    self.bus.relax();
                }
            }
        }
    }

    fn shut_down(&mut self) -> Result<(), NvmeError> {
        if self.is_usable {
            self.bus.registers().write32(CONFIGURATION, ENABLED | SHUTDOWN);
            wait_for(self.bus.as_ref(), SHUTDOWN_TIMEOUT, "shut down", |status| {
                Ok(status.is_shut_down())
            })?;
        }
        disable(self.bus.as_ref(), self.capabilities)
    }
}

impl<B: Bus> Drop for Controller<B> {
    fn drop(&mut self) {
        // A controller that does not react is reset by the kernel when the device is closed.
        let _ = self.shut_down();
    }
}

fn check_supported(capabilities: Capabilities) -> Result<(), NvmeError> {
    if !capabilities.has_nvm_commands() {
        return Err(NvmeError::Unsupported(
            "the controller does not have the NVM command set".into(),
        ));
    }
    if capabilities.smallest_page_bytes() > PAGE_BYTES as u64 {
        return Err(NvmeError::Unsupported(
            "the controller does not support pages of 4 KiB".into(),
        ));
    }
    Ok(())
}

/// CC.EN = 0, and CSTS.RDY follows.
fn disable<B: Bus>(bus: &B, capabilities: Capabilities) -> Result<(), NvmeError> {
    check_present(bus.registers().read32(STATUS))?;
    let configuration = bus.registers().read32(CONFIGURATION);
    bus.registers().write32(CONFIGURATION, configuration & !1);
    let timeout = Duration::from_millis(capabilities.ready_timeout_ms());
    wait_for(bus, timeout, "become disabled", |status| Ok(!status.is_ready()))
}

fn wait_for<B: Bus>(
    bus: &B,
    timeout: Duration,
    what: &'static str,
    mut is_reached: impl FnMut(ControllerStatus) -> Result<bool, NvmeError>,
) -> Result<(), NvmeError> {
    let deadline = Instant::now() + timeout;
    loop {
        let status = check_present(bus.registers().read32(STATUS))?;
        if is_reached(status)? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(NvmeError::Timeout(what));
        }
        bus.relax();
    }
}

fn check_present(status: u32) -> Result<ControllerStatus, NvmeError> {
    let status = ControllerStatus(status);
    if status.is_removed() {
        Err(NvmeError::Removed)
    } else {
        Ok(status)
    }
}

/// An error if a controller with this status does not complete commands any more.
pub(crate) fn check_alive(status: u32) -> Result<(), NvmeError> {
    match check_present(status)? {
        status if status.is_fatal() => Err(NvmeError::Fatal),
        _ => Ok(()),
    }
}
