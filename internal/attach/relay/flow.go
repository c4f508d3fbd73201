package relay

// flow is one flow-control window towards the backend, of a connection or of a stream. The caller counts bytes when
// it sends them, and the backend counts them when it receives them. While the relay holds a call, the two counts
// differ.
type flow struct {
	// avail is how many bytes the backend still accepts.
	avail int64
	// owed is the number of bytes that count for the caller and not yet for the backend. Below zero it is the
	// number of bytes that count only for the backend. avail is always the caller's window plus owed.
	owed int64
}

// takes reports whether the relay may send n more bytes. If the caller has exceeded its window, takes returns true,
// and the backend reports the error.
func (f *flow) takes(n int) bool { return f.avail >= int64(n) || f.owed >= 0 }

// pass counts bytes for both sides.
func (f *flow) pass(n int) { f.avail -= int64(n) }

// hold counts bytes for the caller only.
func (f *flow) hold(n int) { f.owed += int64(n) }

// send counts bytes for the backend only.
func (f *flow) send(n int) {
	f.avail -= int64(n)
	f.owed -= int64(n)
}

// update handles the backend's WINDOW_UPDATE and returns the part that the relay passes on to the caller.
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

// grant returns by how much to enlarge the caller's window now. The caller can then go on sending when held bytes
// nearly fill the window.
func (f *flow) grant() uint32 {
	if f.owed < minFrameSize {
		return 0
	}
	n := uint32(min(f.owed, maxWindow))
	f.owed -= int64(n)
	return n
}
