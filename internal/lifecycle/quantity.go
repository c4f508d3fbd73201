package lifecycle

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// What is wrong with a quantity.
var (
	ErrNoQuantity  = errors.New("is not a quantity")
	ErrBigQuantity = errors.New("is above 9223372036854775807")
)

var suffixes = map[string]*big.Rat{
	"": rat(1, 1), "n": rat(1, 1e9), "u": rat(1, 1e6), "m": rat(1, 1000),
	"k": rat(1e3, 1), "M": rat(1e6, 1), "G": rat(1e9, 1), "T": rat(1e12, 1), "P": rat(1e15, 1), "E": rat(1e18, 1),
	"Ki": rat(1<<10, 1), "Mi": rat(1<<20, 1), "Gi": rat(1<<30, 1), "Ti": rat(1<<40, 1), "Pi": rat(1<<50, 1), "Ei": rat(1<<60, 1),
}

func rat(a, b int64) *big.Rat { return big.NewRat(a, b) }

// maxQuantity bounds the text of a quantity.
const maxQuantity = 40

// Quantity reads a quantity of Kubernetes, counted in units of which one is
// made of per: with 1000, "1.5" is 1500. It is rounded up to whole units, as
// Kubernetes' Quantity.Value and MilliValue do. Grammar: Kubernetes
// resource.Quantity; the exponent form is limited to two digits, which covers
// all of int64. Errors: ErrNoQuantity, ErrBigQuantity.
func Quantity(text string, per int64) (int64, error) {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil && per == 1 {
		return v, nil
	}
	number := strings.TrimRight(text, "numkKMGTPEi")
	suffix := text[len(number):]
	if len(text) > maxQuantity || number == "" || strings.Trim(number, "0123456789.+-eE") != "" {
		return 0, ErrNoQuantity
	}
	scale, ok := suffixes[suffix]
	if i := strings.IndexAny(number, "eE"); !ok || (i >= 0 && (suffix != "" || len(number)-i > 4)) {
		return 0, ErrNoQuantity
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, ErrNoQuantity
	}
	v.Mul(v, scale).Mul(v, rat(per, 1))
	whole, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return 0, ErrBigQuantity
	}
	return whole.Int64(), nil
}
