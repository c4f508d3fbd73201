package intent

// Handling is what the agent does with a key.
type Handling int

// The handlings. A key that is not supported makes a request that this agent does not serve, and
// the pod gets a problem. An ignored key makes no request of a node agent.
const (
	KeyRead Handling = iota
	KeyUnsupported
	KeyIgnored
)

// String returns the handling as docs/keys.md names it.
func (h Handling) String() string { return [...]string{"read", "not supported", "ignored"}[h] }

// Edit is the effect of a change of a label or annotation while its pod runs.
type Edit int

// The effects of an edit. Live: the edit takes effect at once, if the pod's spec is known
// (podspec). Next: the edit affects containers that are created later. Fixed: the value at the
// pod's creation counts for its whole life.
const (
	EditNone Edit = iota // nothing reads it
	EditLive
	EditNext
	EditFixed
)

// String returns the effect as docs/keys.md names it.
func (e Edit) String() string {
	return [...]string{"", "at once", "containers created after it", "no, fixed when the pod is created"}[e]
}

// Place is where a key is: label, annotation or resource name.
type Place string

// The places of keys.
const (
	OnPod        Place = "pod annotation"
	AsLabel      Place = "pod label"
	AsEither     Place = "pod annotation or label"
	AsResource   Place = "resource name"
	OnNode       Place = "Node object"
	OnTopology   Place = "NodeResourceTopology object"
	InQRMRequest Place = "annotation of a QRM request or answer"
)

// onPods reports whether a pod can carry the key.
func (p Place) onPods() bool { return p == OnPod || p == AsLabel || p == AsEither }

// Key is one label, annotation or resource name of a system, and what the agent does with it.
type Key struct {
	System string
	// Name is the key as it is written. A scoped key also has the forms NAME/pod,
	// NAME/container.X and, in older plugins, NAME/X.
	Name   string
	Scoped bool
	// Field is a key inside the JSON object that is the value; "" for the whole.
	Field    string
	Place    Place
	Handling Handling
	Edit     Edit
	// Kinds are the kinds of request that the key can make, as in authorization rules.
	Kinds []Kind
	// Why explains a special property of a key that is read, or the reason why a key is not
	// read.
	Why string
}

// Full returns the key with its field.
func (k Key) Full() string {
	if k.Field == "" {
		return k.Name
	}
	return k.Name + ": " + k.Field
}

// Keys returns the table of all keys: keys of other systems, and keys of Trimtab itself.
// docs/keys.md is made from it.
func Keys() []Key {
	var all []Key
	for _, d := range dialects() {
		if d.keys == nil {
			continue
		}
		for _, k := range d.keys() {
			k.System = d.name
			all = append(all, k)
		}
	}
	return all
}
