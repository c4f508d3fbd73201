package intent

import "testing"

func TestExample(t *testing.T) {
	for text, want := range map[string]Class{"": None, "gold": Dedicated, "silver": Shared, "bronze": Reclaimed, "tin": None} {
		got := read(map[string]string{ExampleQoS: text}, nil)
		if got.Class.V != want || (len(got.Problems) > 0) != (text == "tin") {
			t.Errorf("%q: %v, %v", text, got.Class, got.Problems)
		}
	}
}
