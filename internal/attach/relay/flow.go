package relay

// flow is one flow-control window towards the backend, of a connection or of a stream. The caller counts bytes when
// it sends them, and the backend counts them when it receives them. While the relay holds a call, the two counts
// differ.
type flow struct {
	// window is how many more bytes the backend accepts.
	window int64
	// pending is the number of bytes that count for the caller and not yet for the backend. Below zero it is the
	// number of bytes that count only for the backend. window is always the caller's window plus pending.
	pending int64
}

// maySend reports whether the relay may send n more bytes. If the caller has exceeded its window, maySend returns true,
// and the backend reports the error.
func (f *flow) maySend(n int) bool { return f.window >= int64(n) || f.pending >= 0 }

// count counts bytes that are forwarded: both windows shrink.
func (f *flow) count(n int) { f.window -= int64(n) }

// hold counts bytes that the relay holds: only the caller's window shrinks.
func (f *flow) hold(n int) { f.pending += int64(n) }

// send counts bytes that the relay sends itself: only the backend's window shrinks.
func (f *flow) send(n int) {
	f.window -= int64(n)
	f.pending -= int64(n)
}

// update handles the backend's WINDOW_UPDATE and returns the part that the relay passes on to the caller.
func (f *flow) update(n uint32) uint32 {
	f.window += int64(n)
	give := int64(n) + f.pending
	if give <= 0 {
		f.pending = give
		return 0
	}
	f.pending = max(0, give-maxWindow)
	return uint32(give - f.pending)
}

// grant returns by how much to enlarge the caller's window now. The caller can then go on sending when held bytes
// nearly fill the window.
func (f *flow) grant() uint32 {
	if f.pending < minFrameSize {
		return 0
	}
	n := uint32(min(f.pending, maxWindow))
	f.pending -= int64(n)
	return n
}
