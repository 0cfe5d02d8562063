kernel n_trans {
  %0 = input 0 : f16[8,4096]
  %1 = input 1 : f16[8,4096]
  %2 = input 2 : f16[8,4096]
  %3 = square %1
  %4 = reduce.sum 1 %3
  %5 = const 4096 extent 1.1
  %6 = div %4 %5
  %7 = sqrt %6
  %8 = div %1 %7
  %9 = add %8 %0
  %10 = mul %2 %9
  %11 = add %0 %10
  %12 = square %11
  %13 = reduce.sum 1 %12
  %14 = const 4096 extent 0.1
  %15 = div %13 %14
  %16 = sqrt %15
  %17 = div %11 %16
  output 0 %17 : f16
}
