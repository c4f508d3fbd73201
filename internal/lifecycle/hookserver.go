package lifecycle

// HookServerAnswer is what hook servers answered for one container or pod. It is gathered
// before the event is decided.
type HookServerAnswer struct {
	// Values are for the event's container. The reason of each names its hook server.
	Values []Value
	// Problems describe errors in the answers.
	Problems []Problem
	// Labels and Annotations are added to those of the pod.
	Labels      map[string]string
	Annotations map[string]string
}

// HookServerName is the hook name in reasons and problems of hook servers. The source next to
// it names the server's file.
const HookServerName = "hookserver"

// Empty reports whether the answer has neither values nor problems.
func (o HookServerAnswer) Empty() bool {
	return len(o.Values)+len(o.Problems)+len(o.Labels)+len(o.Annotations) == 0
}
