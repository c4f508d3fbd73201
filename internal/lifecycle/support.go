package lifecycle

import "fmt"

// Support is the result of a check whether the node supports a feature: supported, not supported or unknown.
type Support int

// The results. The zero Support is Unknown.
const (
	Unknown Support = iota
	Supported
	NotSupported
)

// supportNames has the text of each Support, in the order of the constants.
var supportNames = [...]string{"unknown", "supported", "not supported"}

// String returns the result in words.
func (s Support) String() string {
	if s < 0 || int(s) >= len(supportNames) {
		return fmt.Sprintf("Support(%d)", int(s))
	}
	return supportNames[s]
}

// MarshalText makes a Support readable in JSON and YAML.
func (s Support) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Support) UnmarshalText(b []byte) error {
	for i, n := range supportNames {
		if n == string(b) {
			*s = Support(i)
			return nil
		}
	}
	return fmt.Errorf("unknown support %q", b)
}

// Finding is the result of a check whether the node supports a feature, with the reason (Why). Why may be "" if the
// feature is supported.
type Finding struct {
	Support Support `json:"support"`
	Why     string  `json:"why,omitempty"`
}
