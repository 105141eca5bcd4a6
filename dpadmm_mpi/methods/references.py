"""The papers behind methods, noises and accounts, by the words with which the code cites them."""

REFERENCES = {
    "[M]": "X. Zhang, M. M. Khalili, M. Liu: Improving the Privacy and Accuracy of ADMM-Based Distributed "
    "Algorithms, ICML 2018.",
    "[R]": "X. Zhang, M. M. Khalili, M. Liu: Recycled ADMM: Improving the Privacy and Accuracy of Distributed Algorithms, IEEE "
    "Transactions on Information Forensics and Security, 2020.",
    "[Rs]": "X. Zhang, M. M. Khalili, M. Liu: Recycled ADMM: Improve Privacy and Accuracy with Less Computation in Distributed "
    "Algorithms, Allerton 2018, slides.",
    "[S]": "J. Ding, S. M. Errapotu, H. Zhang, Y. Gong, M. Pan, Z. Han: Stochastic ADMM Based Distributed Machine Learning "
    "with Differential Privacy, 2019.",
    "[C]": "T. Xu, F. Shang, Y. Liu, H. Liu, L. Shen, M. Gong: Differentially Private ADMM Algorithms for Machine "
    "Learning, 2020.",
    "Nedic, Ozdaglar 2009": "A. Nedic, A. Ozdaglar: Distributed Subgradient Methods for Multi-Agent Optimization, IEEE "
    "Transactions on Automatic Control, 2009.",
    "Chen, Sayed 2012": "J. Chen, A. H. Sayed: Diffusion Adaptation Strategies for Distributed Optimization and Learning over "
    "Networks, IEEE Transactions on Signal Processing, 2012.",
    "Xu, Zhu, Soh, Xie 2015": "J. Xu, S. Zhu, Y. C. Soh, L. Xie: Augmented Distributed Gradient Methods for Multi-Agent "
    "Optimization under Uncoordinated Constant Stepsizes, CDC 2015.",
    "Cyffers, Even, Bellet, Massoulie 2022": "E. Cyffers, M. Even, A. Bellet, L. Massoulie: Muffliato: Peer-to-Peer Privacy "
    "Amplification for Decentralized Optimization and Averaging, NeurIPS 2022.",
    "Chaudhuri, Monteleoni, Sarwate 2011": "K. Chaudhuri, C. Monteleoni, A. D. Sarwate: Differentially Private Empirical Risk "
    "Minimization, JMLR 2011.",
    "Bastianello, Carli, Schenato, Todescato 2021": "N. Bastianello, R. Carli, L. Schenato, M. Todescato: Asynchronous "
    "Distributed Optimization over Lossy Networks via Relaxed ADMM: Stability and Linear Convergence, IEEE Transactions on "
    "Automatic Control, 2021.",
    "Golub, Varga 1961": "G. H. Golub, R. S. Varga: Chebyshev Semi-Iterative Methods, Successive Overrelaxation Iterative "
    "Methods, and Second Order Richardson Iterative Methods, Numerische Mathematik, 1961.",
}


def cited(*texts: str) -> dict[str, str]:
    """The papers that some texts cite, in the order of the list above.

    >>> list(cited("[R] (10)-(13), Algorithm 1", "after [M] Theorem 3.1"))
    ['[M]', '[R]']
    """
    return {key: paper for key, paper in REFERENCES.items() if any(key in text for text in texts)}
