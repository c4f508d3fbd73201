package intent

// Handling says whether the agent reads a key.
type Handling int

// The ways to handle a key. A key that is not supported is a request that this agent does not serve, and
// the agent reports it. An ignored key is no request to a node agent.
const (
	KeyRead Handling = iota
	KeyUnsupported
	KeyIgnored
)

// String returns the handling as docs/keys.md names it.
func (h Handling) String() string { return [...]string{"read", "not supported", "ignored"}[h] }

// Edit is the effect of a change of a label or annotation while its pod runs.
type Edit int

// The effects of an edit.
const (
	EditNone  Edit = iota // the agent does not read the key
	EditLive              // the edit takes effect at once, if the agent knows the pod's spec
	EditNext              // the edit affects containers that are created later
	EditFixed             // the edit has no effect, because the value at the pod's creation applies
)

// String describes the effect in a few words.
func (e Edit) String() string {
	return [...]string{"", "at once", "containers created after it", "no, fixed when the pod is created"}[e]
}

// Location is the object and field in which a key occurs, such as a pod annotation.
type Location string

// The locations of keys.
const (
	PodAnnotation        Location = "pod annotation"
	PodLabel             Location = "pod label"
	PodAnnotationOrLabel Location = "pod annotation or label"
	ResourceName         Location = "resource name"
	NodeObject           Location = "Node object"
	TopologyObject       Location = "NodeResourceTopology object"
	QRMAnnotation        Location = "annotation of a QRM request or answer"
)

// isPodKey reports whether a pod can have a key of this location.
func (l Location) isPodKey() bool {
	return l == PodAnnotation || l == PodLabel || l == PodAnnotationOrLabel
}

// Key is one label, annotation or resource name of a system, and what the agent does with it.
type Key struct {
	System string // the name of the dialect, such as koordinator
	// Name is the key as it is written. A scoped key also has the forms NAME/pod,
	// NAME/container.X and, in older plugins, NAME/X.
	Name   string
	Scoped bool
	// Field is a member of the JSON object in the value of the key; "" if the Key describes the whole value.
	Field    string
	Location Location
	Handling Handling
	Edit     Edit // the effect of a change of the key while its pod runs
	// Kinds are the kinds of requests that the key can make, as in authorization rules.
	Kinds []Kind
	// Why is the reason why the agent does not read the key. For a key that it reads, Why explains
	// a special property.
	Why string
}

// FullName returns the key, with its field if it has one.
func (k Key) FullName() string {
	if k.Field == "" {
		return k.Name
	}
	return k.Name + ": " + k.Field
}

// Keys returns the table of all keys of Trimtab and of other systems. docs/keys.md shows it.
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
