"""An external command as a case: any benchmark, with everything else from iosonde. See docs/commands.md."""
