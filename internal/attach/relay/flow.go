package relay

// flow is one window towards the backend, of a connection or of a stream.
// Callers count bytes when they send them, the backend when it gets them; a
// held call makes the two differ.
type flow struct {
	// avail is what the backend still takes.
	avail int64
	// owed is what the caller was charged for and the backend not yet, or, below
	// zero, what the backend was charged for beyond it: avail is always the
	// caller's own window plus owed.
	owed int64
}

// takes reports whether the backend takes n bytes more. A caller that sends more
// than it was allowed to is left to the backend.
func (f *flow) takes(n int) bool { return f.avail >= int64(n) || f.owed >= 0 }

// pass charges both sides.
func (f *flow) pass(n int) { f.avail -= int64(n) }

// hold charges the caller alone.
func (f *flow) hold(n int) { f.owed += int64(n) }

// send charges the backend alone.
func (f *flow) send(n int) {
	f.avail -= int64(n)
	f.owed -= int64(n)
}

// update takes the backend's WINDOW_UPDATE and returns what of it the caller is
// told.
func (f *flow) update(n uint32) uint32 {
	f.avail += int64(n)
	give := int64(n) + f.owed
	if give <= 0 {
		f.owed = give
		return 0
	}
	f.owed = max(0, give-maxWindow)
	return uint32(give - f.owed)
}

// grant returns by how much to enlarge the caller's window now, so that it goes on
// sending, where held bytes come near to filling a window.
func (f *flow) grant() uint32 {
	if f.owed < smallFrame {
		return 0
	}
	n := uint32(min(f.owed, maxWindow))
	f.owed -= int64(n)
	return n
}
