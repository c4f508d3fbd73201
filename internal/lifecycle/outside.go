package lifecycle

// Outside is what somebody other than Trimtab's own hooks wants of one container
// or pod: what a hook server answered. It is gathered before an event is
// decided.
type Outside struct {
	// Values are of the event's container, each with the reason that names who
	// wants it.
	Values []Value
	// Problems are what was wrong with the answers.
	Problems []Problem
	// Labels and Annotations are laid over the pod's.
	Labels      map[string]string
	Annotations map[string]string
}

// OutsideHook is the hook in the reasons and problems of what comes from hook
// servers; the source beside it names the server's file.
const OutsideHook = "hookserver"

// Empty reports whether nothing was wanted and nothing was wrong.
func (o Outside) Empty() bool {
	return len(o.Values)+len(o.Problems)+len(o.Labels)+len(o.Annotations) == 0
}
