"""Why a node does not fit: shortfalls, reasons by device, messages."""
