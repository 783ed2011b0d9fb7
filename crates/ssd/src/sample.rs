//! Small models for tests and examples; what is shipped is in `python/iosonde/features/simulated_drives/models/`.

use iosonde_protocol::*;

/// One drive.
pub const SINGLE: ArrayModel = ArrayModel {
    level: RaidLevel::Raid0,
    drives: 1,
    chunk_bytes: 64 << 10,
    bytes_per_second: None,
    parity_bytes_per_second: None,
};

/// Flash of 256 MiB on 8 dies, with an interface that is fast enough not to matter.
pub fn flash() -> DriveModel {
    DriveModel {
        name: "flash".into(),
        capacity_bytes: 256 << 20,
        media: MediaModel {
            channels: 4,
            dies: 8,
            channel_bytes_per_second: 4_000_000_000,
            program_bytes: 16 << 10,
            read_ns: 50_000,
            program_ns: 400_000,
            time_spread: 0.0,
            retry_fraction: 0.0,
            retry_ns: 0,
            suspend_ns: None,
            erase_suspend_ns: None,
        },
        translation: Translation::PageMapped {
            over_provisioning: 0.2,
            mapping_bytes: 4096,
            block_programs: 2,
            erase_ns: 2_000_000,
            collection: Collection::Greedy,
            idle_ns: None,
            idle_free_fraction: 0.0,
            slc: None,
        },
        buffer: BufferModel {
            bytes: 1 << 20,
            power_loss_protection: true,
        },
        interface: InterfaceModel {
            read_bytes_per_second: 100_000_000_000,
            write_bytes_per_second: 100_000_000_000,
            half_duplex: false,
            transfer_ns: 0,
            read_command_ns: 0,
            write_command_ns: 0,
            read_latency_ns: 0,
            write_latency_ns: 0,
            queue_depth: 4096,
            command_bytes: 128 << 10,
        },
        limits: Vec::new(),
        first_touch: None,
    }
}

/// 3D XPoint of 256 MiB on 8 dies.
pub fn crosspoint() -> DriveModel {
    let mut model = flash();
    model.name = "crosspoint".into();
    model.media.program_bytes = 4 << 10;
    model.media.read_ns = 6_000;
    model.media.program_ns = 8_000;
    model.translation = Translation::InPlace;
    model.buffer.bytes = 0;
    model
}
