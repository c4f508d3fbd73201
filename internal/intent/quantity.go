package intent

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// quantity is a Kubernetes quantity as JSON text: a string such as "500" or
// "2Gi", or a bare number.
type quantity string

// UnmarshalJSON keeps the text of a string or number.
func (q *quantity) UnmarshalJSON(b []byte) error {
	*q = quantity(strings.Trim(string(b), `"`))
	return nil
}

var suffixes = map[string]*big.Rat{
	"": rat(1, 1), "n": rat(1, 1e9), "u": rat(1, 1e6), "m": rat(1, 1000),
	"k": rat(1e3, 1), "M": rat(1e6, 1), "G": rat(1e9, 1), "T": rat(1e12, 1), "P": rat(1e15, 1), "E": rat(1e18, 1),
	"Ki": rat(1<<10, 1), "Mi": rat(1<<20, 1), "Gi": rat(1<<30, 1), "Ti": rat(1<<40, 1), "Pi": rat(1<<50, 1), "Ei": rat(1<<60, 1),
}

func rat(a, b int64) *big.Rat { return big.NewRat(a, b) }

// integer returns the quantity rounded up to a whole number, as Kubernetes'
// Quantity.Value does. Grammar: Kubernetes resource.Quantity; the exponent
// form is limited to two digits, which covers all of int64.
func (q quantity) integer() (int64, error) {
	text := string(q)
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return v, nil
	}
	number := strings.TrimRight(text, "numkKMGTPEi")
	suffix := text[len(number):]
	if len(text) > 40 || number == "" || strings.Trim(number, "0123456789.+-eE") != "" {
		return 0, fmt.Errorf("%q is not a quantity", printable(text))
	}
	scale, ok := suffixes[suffix]
	if i := strings.IndexAny(number, "eE"); !ok || (i >= 0 && (suffix != "" || len(number)-i > 4)) {
		return 0, fmt.Errorf("%q is not a quantity", printable(text))
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is not a quantity", printable(text))
	}
	v.Mul(v, scale)
	whole, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return 0, fmt.Errorf("%q is above %d", printable(text), int64(math.MaxInt64))
	}
	return whole.Int64(), nil
}
