package intent

import "github.com/trimtab/trimtab/internal/lifecycle"

// ExampleQoS is the label of the trial dialect.
const ExampleQoS = "example.org/qos"

// exampleKeys are the keys of the trial dialect.
func exampleKeys() []Key {
	return []Key{{Name: ExampleQoS, Place: AsLabel, Edit: EditFixed, Kinds: []Kind{ClassDedicated, ClassShared, ClassReclaimed}}}
}

// readExample reads the class of the trial dialect.
func readExample(t *texts, _ *lifecycle.PodSpec, out *Pod) {
	text := t.label(ExampleQoS)
	class, known := map[string]Class{"gold": Dedicated, "silver": Shared, "bronze": Reclaimed}[text]
	switch {
	case known:
		out.Class, out.Name = Sourced[Class]{class, ExampleQoS}, text
	case text != "":
		out.problem(ExampleQoS, text, "want gold, silver or bronze")
	}
}
