package lifecycle

// Outside is what hook servers want for one container or pod. It is gathered before
// an event is decided.
type Outside struct {
	// Values are for the event's container, each with a reason that names its hook
	// server.
	Values []Value
	// Problems say what was wrong with the answers.
	Problems []Problem
	// Labels and Annotations are added to the pod's.
	Labels      map[string]string
	Annotations map[string]string
}

// OutsideHook is the hook in the reasons and problems of hook servers; the source
// next to it names the server's file.
const OutsideHook = "hookserver"

// Empty reports whether hook servers want nothing and nothing was wrong.
func (o Outside) Empty() bool {
	return len(o.Values)+len(o.Problems)+len(o.Labels)+len(o.Annotations) == 0
}
