//! Queries of an NVMe controller through the user-level driver, without a run.

use iosonde_nvme::NvmeError;
use iosonde_nvme::command::Structure;
use iosonde_nvme::pair::Device;
use iosonde_nvme::vfio::{Vfio, numa_node};
use serde_json::{Value, json};

/// Resets, enables and identifies the controller at a PCI address, which is bound to `vfio-pci`. Data structures of
/// Identify are hexadecimal.
///
/// # Errors
/// When the controller cannot be used.
pub fn identify(address: &str) -> Result<Value, NvmeError> {
    let device = Device::start(Vfio::open(address, 0)?)?;
    let mut controller = device.controller();
    let page = controller.identify(Structure::Controller)?;
    let mut namespaces = Vec::new();
    for number in controller.namespaces()? {
        let page = controller.identify(Structure::Namespace(number))?;
        let described = match controller.namespace(number) {
            Ok(namespace) => json!({"blocks": namespace.blocks, "block_bytes": namespace.block_bytes}),
            Err(error) => json!({"refused": error.to_string()}),
        };
        namespaces.push(json!({"number": number, "identify": hexadecimal(&page), "format": described}));
    }
    let largest = controller.largest_transfer_bytes();
    Ok(json!({
        "address": address,
        "serial": controller.identity().serial,
        "model": controller.identity().model,
        "firmware": controller.identity().firmware,
        "largest_transfer_bytes": (largest < u64::MAX).then_some(largest),
        "queue_entries": controller.capabilities().queue_entries(),
        "has_sgl": controller.identity().has_sgl,
        "numa_node": numa_node(address),
        "identify": hexadecimal(&page),
        "namespaces": namespaces,
    }))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
