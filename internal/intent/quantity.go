package intent

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// quantity is a Kubernetes quantity in JSON: a string such as "500" or "2Gi", or a
// number.
type quantity string

// UnmarshalJSON keeps the text of a string or number.
func (q *quantity) UnmarshalJSON(b []byte) error {
	*q = quantity(strings.Trim(string(b), `"`))
	return nil
}

// integer returns the quantity rounded up to a whole number.
func (q quantity) integer() (int64, error) {
	v, err := lifecycle.Quantity(string(q), 1)
	if err != nil {
		return 0, fmt.Errorf("%q %w", printable(string(q)), err)
	}
	return v, nil
}
