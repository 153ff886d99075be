module github.com/dormouse-run/dormouse

go 1.26.3
