"""The papers that the built-in operators and properties come from, as their `source` cites them."""

SWINGLER_2022 = "Swingler, IJCCI 2022"
ZHONG_2020 = "Zhong, Hu and Chen, DSN 2020"
HENDRYCKS_2019 = "Hendrycks and Dietterich, ICLR 2019"
MINTUN_2021 = "Mintun, Kirillov and Xie, NeurIPS 2021"
