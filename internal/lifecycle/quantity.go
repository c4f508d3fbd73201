package lifecycle

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// The errors of Quantity.
var (
	ErrNoQuantity  = errors.New("is not a quantity")
	ErrBigQuantity = errors.New("is above 9223372036854775807")
)

// factors has the multiplier and the divisor of each suffix.
var factors = map[string][2]uint64{
	"": {1, 1}, "n": {1, 1e9}, "u": {1, 1e6}, "m": {1, 1000},
	"k": {1e3, 1}, "M": {1e6, 1}, "G": {1e9, 1}, "T": {1e12, 1}, "P": {1e15, 1}, "E": {1e18, 1},
	"Ki": {1 << 10, 1}, "Mi": {1 << 20, 1}, "Gi": {1 << 30, 1}, "Ti": {1 << 40, 1}, "Pi": {1 << 50, 1}, "Ei": {1 << 60, 1},
}

// plainQuantity is the fast path of Quantity: digits with an optional fraction and suffix. It
// takes a tenth of the time of anyQuantity, and a pod can name hundreds of quantities.
func plainQuantity(text string, per int64) (int64, bool) {
	var digits uint64
	at, divide := 0, uint64(0) // 0 until the point
	for ; at < len(text); at++ {
		c := text[at]
		if c == '.' && divide == 0 && at > 0 {
			divide = 1
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		if digits >= 1e17 || divide >= 1e17 {
			return 0, false
		}
		digits, divide = digits*10+uint64(c-'0'), divide*10
	}
	f, known := factors[text[at:]]
	if !known || at == 0 || divide == 1 {
		return 0, false
	}
	if divide = max(divide, 1); f[1] > 1 && divide > 1e9 {
		return 0, false
	}
	divide *= f[1]
	high, times := bits.Mul64(f[0], uint64(per))
	if high != 0 {
		return 0, false
	}
	high, low := bits.Mul64(digits, times)
	if high >= divide {
		return 0, false
	}
	whole, rest := bits.Div64(high, low, divide)
	if rest > 0 {
		whole++
	}
	return int64(whole), whole <= math.MaxInt64
}

var suffixes = map[string]*big.Rat{
	"": rat(1, 1), "n": rat(1, 1e9), "u": rat(1, 1e6), "m": rat(1, 1000),
	"k": rat(1e3, 1), "M": rat(1e6, 1), "G": rat(1e9, 1), "T": rat(1e12, 1), "P": rat(1e15, 1), "E": rat(1e18, 1),
	"Ki": rat(1<<10, 1), "Mi": rat(1<<20, 1), "Gi": rat(1<<30, 1), "Ti": rat(1<<40, 1), "Pi": rat(1<<50, 1), "Ei": rat(1<<60, 1),
}

func rat(a, b int64) *big.Rat { return big.NewRat(a, b) }

// maxQuantity limits the length of a quantity's text.
const maxQuantity = 40

// Quantity parses a Kubernetes quantity and returns it times per: with 1000, "1.5" is 1500. It
// rounds up to a whole number, as Kubernetes' Quantity.Value and MilliValue do. Grammar:
// Kubernetes resource.Quantity; exponents have at most two digits, which covers int64. Errors:
// ErrNoQuantity, ErrBigQuantity.
func Quantity(text string, per int64) (int64, error) {
	if v, ok := plainQuantity(text, per); ok {
		return v, nil
	}
	if v, err := strconv.ParseInt(text, 10, 64); err == nil && per == 1 {
		return v, nil
	}
	return anyQuantity(text, per)
}

// anyQuantity is Quantity with exact arithmetic on numbers of any size.
func anyQuantity(text string, per int64) (int64, error) {
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
