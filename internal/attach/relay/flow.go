package relay

// flow is the flow-control window towards the backend, of a connection or of a stream. The caller counts bytes when it
// sends them, and the backend counts bytes when it receives them. While the relay holds a call, the two counts differ.
type flow struct {
	// window is how many more bytes the backend accepts. The caller itself counts how many more bytes it may send. The
	// caller's number is always window minus pending.
	window int64
	// pending is the number of bytes that the caller has counted and the backend has not. A negative number means that
	// the backend has counted more bytes than the caller.
	pending int64
}

// maySend reports whether the relay may send n more bytes now. It also returns true if the caller itself has exceeded
// the window: the relay then forwards the bytes, and the backend reports the error.
func (f *flow) maySend(n int) bool { return f.window >= int64(n) || f.pending >= 0 }

// count counts n bytes that the relay forwards: both windows shrink.
func (f *flow) count(n int) { f.window -= int64(n) }

// hold counts n bytes that the relay holds: only the caller's window shrinks.
func (f *flow) hold(n int) { f.pending += int64(n) }

// send counts n bytes that the relay itself sends: only the backend's window shrinks.
func (f *flow) send(n int) {
	f.window -= int64(n)
	f.pending -= int64(n)
}

// update handles a WINDOW_UPDATE of n bytes from the backend. It returns by how many bytes the relay enlarges the
// caller's window.
func (f *flow) update(n uint32) uint32 {
	f.window += int64(n)
	sum := int64(n) + f.pending
	if sum <= 0 {
		f.pending = sum
		return 0
	}
	f.pending = max(0, sum-maxWindow)
	return uint32(sum - f.pending)
}

// grant returns by how many bytes the relay enlarges the caller's window now, without an update from the backend. So
// the caller can go on sending although held bytes fill the window.
func (f *flow) grant() uint32 {
	if f.pending < minFrameSize {
		return 0
	}
	n := uint32(min(f.pending, maxWindow))
	f.pending -= int64(n)
	return n
}
