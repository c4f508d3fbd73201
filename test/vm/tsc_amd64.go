package vm

// ticks is the processor's time stamp counter, which QEMU's emulation hands to the guest as it is.
func ticks() uint64
